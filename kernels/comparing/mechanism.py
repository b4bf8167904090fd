"""Converts the facts and differences of two compiled sides into the values of tilewatch.mechanisms.find."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from tilewatch.kernels.results import Params, StaticFacts
from tilewatch.mechanisms.pairs import Moved, WinnerFacts

if TYPE_CHECKING:
    from tilewatch.kernels.code_diff.code_diff import CodeDiff  # every command imports this


def read_winner_facts(config: Params, facts: StaticFacts) -> WinnerFacts:
    return WinnerFacts(config, {name: value for name, value in asdict(facts).items() if isinstance(value, int)})


def read_moved(diffs: Iterable["CodeDiff"]) -> tuple[Moved, ...]:
    return tuple(Moved(row.kind, row.loop_depth > 0, row.base, row.head) for diff in diffs for row in diff.rows)
