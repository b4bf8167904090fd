"""Holds what `tilewatch doctor` found of one thing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None for something that is missing and not needed on this machine."""

    name: str
    ok: bool | None
    found: str
    fix: str | None = None
