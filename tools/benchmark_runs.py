"""Reads the table `runs` of bounds.toml: the benchmarks that take the figures of docs/develop/measurements.md."""

import tomllib
from dataclasses import dataclass

from benchmarks.bounds import BOUNDS

MODULES = {"mutants": "tests.mutants.run"}
"""Modules of the benchmarks that are not in the folder benchmarks/."""


@dataclass(frozen=True)
class Run:
    """One benchmark to run. `measures` are the paths whose change makes its result old. `needs` are the clones that it
    reads."""

    name: str
    command: str
    minutes: int
    measures: tuple[str, ...]
    gpu: bool = False
    needs: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        module, *options = self.command.split()
        return ["-m", MODULES.get(module, f"benchmarks.{module}"), *options]


def read_runs() -> list[Run]:
    rows = tomllib.loads(BOUNDS.read_text(encoding="utf-8"))["runs"]
    return [
        Run(
            name,
            row["command"],
            row["minutes"],
            tuple(row["measures"]),
            row.get("gpu", False),
            tuple(row.get("with", ())),
        )
        for name, row in rows.items()
    ]
