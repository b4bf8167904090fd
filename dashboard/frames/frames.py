"""Turns rows of the database into data frames. Knows no query, no cache and no widget."""

from collections.abc import Sequence
from typing import Any

import pandas as pd


def to_frame(row: type, rows: Sequence[Any]) -> pd.DataFrame:
    """A frame that has its columns even when there is no row, and None where a text is missing.

    pandas writes NaN for a missing text, and NaN is true in an `if`.
    """
    names = list(row.__dataclass_fields__)  # type: ignore[attr-defined]  # every row is a dataclass
    frame = pd.DataFrame([vars(each) for each in rows], columns=names)
    texts = {name: frame[name].astype(object).where(frame[name].notna(), None) for name in frame.select_dtypes("str")}
    return frame.assign(**texts)
