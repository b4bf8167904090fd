"""Builds SQL expressions for times and waits by the database's clock."""

from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.orm import InstrumentedAttribute

FIRST_WAIT_S = 15.0
LONGEST_WAIT_S = 600.0
"""The longest wait in seconds. The first wait is FIRST_WAIT_S, and it doubles with each further failure."""

clock_now = func.clock_timestamp


def after(seconds: float | ColumnElement[Any]) -> ColumnElement[Any]:
    return clock_now() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def backoff_s(earlier_waits: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[float]:
    """Returns the seconds to wait after n earlier waits: min(FIRST_WAIT_S * 2^n, LONGEST_WAIT_S)."""
    return func.least(FIRST_WAIT_S * func.power(2.0, func.least(earlier_waits, 30)), LONGEST_WAIT_S)
