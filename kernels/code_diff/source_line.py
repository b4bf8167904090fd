"""Defines a line of source as debug information names it."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class SourceLine:
    """A line of a library file."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.number}"
