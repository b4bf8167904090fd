"""Draws faults at random from all modules that decide: nobody wrote a test for one of them before it was drawn.

Each kind of fault has the same chance, and within a kind each place, so that what is rare is drawn too.
"""

import ast
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.mutants.mutants import ROOT
from tests.mutants.operators import Fault, list_faults
from tools.changed_tests import list_tests

DECIDING = (
    "dashboard/frames/*.py",
    "dashboard/rights.py",
    "dashboard/sign_in.py",
    "db/lifecycle/*.py",
    "db/trial_facts.py",
    "kernels/children/*.py",
    "kernels/comparing/**/*.py",
    "kernels/compiling/*store*.py",
    "kernels/gpu/result_error.py",
    "kernels/gpu/rounds.py",
    "kernels/measuring/*.py",
    "kernels/recording/*.py",
    "kernels/results.py",
    "kernels/device.py",
    "kernels/statistics.py",
    "worker/detection/*.py",
    "worker/judging/*.py",
    "worker/notify/*.py",
    "worker/queue/*.py",
)
"""What decides a number, a verdict, an alert or a right."""


@dataclass(frozen=True)
class DrawnFault:
    """A fault and the tests that may notice it, as they are when it is drawn: the checkout may change meanwhile."""

    file: str
    fault: Fault
    tests: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return (
            f"{self.file}:{self.fault.line} {self.fault.kind}: {_shorten(self.fault.old)} -> {_shorten(self.fault.new)}"
        )

    def apply(self, source: str) -> str:
        return self.fault.apply(source)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:45]} ... {line[-20:]}"


def list_deciding() -> list[str]:
    """Lists the modules that decide, relative to the checkout."""
    files = {file for pattern in DECIDING for file in ROOT.glob(pattern)}
    return sorted(str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py")


def draw(count: int, seed: int, modules: Sequence[str] = ()) -> list[DrawnFault]:
    """Draws faults, of other lines each, from `modules` or from all that decide."""
    chance = random.Random(seed)
    kinds: dict[str, list[DrawnFault]] = {}
    for module in modules or list_deciding():
        for fault in list_faults((ROOT / module).read_text(encoding="utf-8")):
            kinds.setdefault(fault.kind, []).append(DrawnFault(module, fault))
    for faults in kinds.values():
        chance.shuffle(faults)
    drawn = list(itertools.islice(_take_turns(kinds), count))
    return [replace(each, tests=tuple(list_tests([Path(each.file)]))) for each in drawn]


def _take_turns(kinds: dict[str, list[DrawnFault]]) -> Iterator[DrawnFault]:
    """Yields one fault of each kind after the other, and none of a line that had one."""
    lines: set[tuple[str, int]] = set()
    for turn in itertools.zip_longest(*(kinds[kind] for kind in sorted(kinds))):
        for drawn in turn:
            if drawn is not None and (drawn.file, drawn.fault.line) not in lines and _is_readable(drawn):
                lines.add((drawn.file, drawn.fault.line))
                yield drawn


def _is_readable(drawn: DrawnFault) -> bool:
    try:
        ast.parse(drawn.apply((ROOT / drawn.file).read_text(encoding="utf-8")))
    except SyntaxError:
        return False
    return True
