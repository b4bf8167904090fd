"""Defines a finding of `tilewatch doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None if a thing is missing but not needed on this machine."""

    name: str
    ok: bool | None
    found: str
    fix: str | None = None
