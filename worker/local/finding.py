"""Defines a finding of `tilewatch doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None if something is missing that this machine does not need."""

    name: str
    ok: bool | None
    found: str
    fix: str | None = None
