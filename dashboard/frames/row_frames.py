"""Turns rows of the database into data frames."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from tilewatch.db.page_reads.sweeps import TrialRow


def to_frame(row: type, rows: Sequence[Any]) -> pd.DataFrame:
    """Returns a frame with a column for each field of the class `row`, even without rows. Missing texts are None."""
    if not rows:
        # A column of times needs its type, so that it compares with timestamps.
        types = {each.name: "datetime64[us, UTC]" if "datetime" in str(each.type) else object for each in fields(row)}
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()})
    return pd.DataFrame({each.name: _column([getattr(one, each.name) for one in rows]) for each in fields(row)})


def _column(values: list[Any]) -> list[Any] | pd.Series:
    """Returns a column's values. Texts become a column of objects, because pandas' text type turns None into NaN."""
    known = next((value for value in values if value is not None), None)
    return pd.Series(values, dtype=object) if isinstance(known, str) else values


def trials_frame(rows: Sequence[TrialRow]) -> pd.DataFrame:
    """Returns a frame of trials, with a column for each parameter and the outcome in words."""
    frame = to_frame(TrialRow, rows)
    frame["outcome"] = [_outcome(row.status, row.compile_status) for row in rows]
    params = pd.DataFrame([row.params for row in rows]).add_prefix("param.")
    return pd.concat([frame.drop(columns="params"), params], axis=1)


def _outcome(status: str, compile_status: str | None) -> str:
    if status == "not_compiled":
        return "timeout" if compile_status == "timeout" else "compile error"
    return status.replace("_", " ")
