"""Turns rows of the database into data frames. Knows no query, no cache and no widget."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tilewatch.db.page_reads.sweeps import TrialRow


def to_frame(row: type, rows: Sequence[Any]) -> pd.DataFrame:
    """A frame that has its columns even when there is no row, and None where a text is missing.

    pandas writes NaN for a missing text, and NaN is true in an `if`.
    """
    names = row.__dataclass_fields__  # type: ignore[attr-defined]  # every row is a dataclass
    return pd.DataFrame({name: _column([getattr(each, name) for each in rows]) for name in names})


def _column(values: list[Any]) -> list[Any] | pd.Series:
    """A text's column is one of objects from the start: pandas' own has NaN, and takes twice as long to make."""
    known = next((value for value in values if value is not None), None)
    return pd.Series(values, dtype=object) if isinstance(known, str) else values


def trials_frame(rows: Sequence[TrialRow]) -> pd.DataFrame:
    """A frame of trials with one column per parameter, `param.NAME`, and `outcome`, the word people read for how a
    trial ended."""
    frame = to_frame(TrialRow, rows)
    frame["outcome"] = [_outcome(row.status, row.compile_status) for row in rows]
    params = pd.DataFrame([row.params for row in rows]).add_prefix("param.")
    return pd.concat([frame.drop(columns="params"), params], axis=1)


def _outcome(status: str, compile_status: str | None) -> str:
    if status == "not_compiled":
        return "timeout" if compile_status == "timeout" else "compile error"
    return status.replace("_", " ")
