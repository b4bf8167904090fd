"""Defines a mistake that `tilewatch validate` finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake in a file, as a sentence. `line` is None if the mistake is not in a single line."""

    file: str
    line: int | None
    sentence: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.sentence}"
