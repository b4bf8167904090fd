"""Defines a mistake that `tilewatch validate` finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """Says in a sentence what is wrong and what was expected. `line` is None if the mistake is not in a single line."""

    file: str
    line: int | None
    sentence: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.sentence}"
