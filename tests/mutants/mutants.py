"""Reads the lists of mutants: one TOML file per kind of silent fault, next to this module."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class BadMutant(Exception):
    """A mutant that cannot be applied; the message names it."""


@dataclass(frozen=True)
class Mutant:
    """`old` is text that occurs once in `file`; with `new` in its place, `test` (a pytest id) must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str

    @property
    def tests(self) -> tuple[str, ...]:
        return (self.test,)

    def apply(self, source: str) -> str:
        """Raises BadMutant when the text is not there, or not only once."""
        count = source.count(self.old)
        if count != 1 or self.old == self.new:
            raise BadMutant(
                f"{self.name}: its text occurs {count} times in {self.file}, and must occur once:\n{self.old}"
            )
        return source.replace(self.old, self.new)


def read_mutants() -> list[Mutant]:
    mutants = [
        Mutant(**fields) for path in sorted(HERE.glob("*.toml")) for fields in tomllib.loads(path.read_text())["mutant"]
    ]
    names = [mutant.name for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadMutant(f"two mutants have the same name: {', '.join(sorted(twice))}")
    return mutants
