"""Times pairs of base and head until every verdict is sure or the time is spent.

Each pair is first launched once. After that, the pairs that seem most slowed down are launched first."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from tilewatch.grouping import group_by
from tilewatch.kernels.comparing.gpu_bench import LaunchBench, Work
from tilewatch.kernels.comparing.sequential import list_critical_values
from tilewatch.kernels.comparing.verdict import FAMILY_ERROR, Design, Verdict, judge
from tilewatch.kernels.measuring.pair_bench import PROBLEMS_AT_ONCE, LaunchFailed, LaunchResult

MOST_DEATHS = 3
"""A pair is given up after so many processes died while they launched it."""

Key = tuple[str, str, str]
"""Identifies a pair to time: kernel, problem and label."""


@dataclass(frozen=True)
class Timing:
    """The times of a pair's launches. `failure` says why the pair could not be compared."""

    base_us: tuple[float, ...] = ()
    head_us: tuple[float, ...] = ()
    failure: str | None = None
    is_of_head: bool = False
    not_apart: str = ""  # why the process that ran host code also timed it
    may_pass: bool = False  # a later run may succeed

    def judge(self, design: Design) -> Verdict | None:
        """Returns the verdict on the launches, or None without launches."""
        return judge(self.base_us, self.head_us, design) if self.base_us else None


class TimingRun(Generic[Work]):
    """Times pairs of base and head until their verdicts are sure."""

    def __init__(
        self,
        works: Sequence[Work],
        design: Design,
        on_timing: Callable[[Key, Timing], None],
        *,
        known: Mapping[Key, Timing] | None = None,
        is_sure: Callable[[Verdict], bool] = lambda verdict: verdict.is_final,
    ) -> None:
        """Prepares to time each pair until `is_sure` accepts its verdict. `known` has the launches of earlier runs."""
        self._works: dict[Key, Work] = {work.key: work for work in works}
        self.timings: dict[Key, Timing] = {key: (known or {}).get(key, Timing()) for key in self._works}
        self._design, self._on_timing, self._is_sure = design, on_timing, is_sure
        self._deaths: Counter[Key] = Counter()

    def list_open(self) -> list[Key]:
        """Lists the pairs whose verdict is not sure: those never launched, then the most slowed down."""
        return sorted((key for key in self._works if self._is_open(key)), key=self._rank)

    def run(self, bench: LaunchBench[Work], is_spent: Callable[[], bool]) -> None:
        """Times pairs until every verdict is sure or `is_spent` returns True."""
        for look in (1, *_list_useful_looks(self._design)):
            self._launch_until(bench, look, is_spent)

    def _launch_until(self, bench: LaunchBench[Work], launches: int, is_spent: Callable[[], bool]) -> None:
        waiting = [key for key in self.list_open() if self._count(key) < launches]
        for part in _list_parts(waiting):
            while todo := [key for key in part if self._count(key) < launches and self._is_open(key)]:
                if is_spent():
                    return
                works = [replace(self._works[key], launches=self._count(key)) for key in todo]
                for work, result in bench.launch_each(works):
                    self._add(work.key, result)
                    if is_spent():
                        return

    def _add(self, key: Key, result: LaunchResult) -> None:
        timing = self.timings[key]
        if isinstance(result, LaunchFailed):
            self._deaths[key] += 1
            if not result.is_final and self._deaths[key] < MOST_DEATHS:
                return
            may_pass = not result.is_final
            timing = replace(timing, failure=result.failure, is_of_head=result.is_of_head, may_pass=may_pass)
        else:
            base_us, head_us = (*timing.base_us, result.base_us), (*timing.head_us, result.head_us)
            timing = replace(timing, base_us=base_us, head_us=head_us, not_apart=result.not_apart)
        self.timings[key] = timing
        self._on_timing(key, timing)

    def _count(self, key: Key) -> int:
        return len(self.timings[key].base_us)

    def _is_open(self, key: Key) -> bool:
        timing, verdict = self.timings[key], self.timings[key].judge(self._design)
        return timing.failure is None and (verdict is None or not self._is_sure(verdict))

    def _rank(self, key: Key) -> float:
        verdict = self.timings[key].judge(self._design)
        return -math.inf if verdict is None else -verdict.change


def _list_parts(keys: Sequence[Key]) -> list[list[Key]]:
    """Returns the pairs in parts of PROBLEMS_AT_ONCE problems. A problem's pairs are neighbours, because a bench may
    launch them together."""
    problems = list(group_by(keys, lambda key: key[:2]).values())
    parts = (problems[start : start + PROBLEMS_AT_ONCE] for start in range(0, len(problems), PROBLEMS_AT_ONCE))
    return [list(itertools.chain.from_iterable(part)) for part in parts]


def _list_useful_looks(design: Design) -> Iterator[int]:
    """Yields the launch counts at which a pair can be judged as slower."""
    critical = list_critical_values(design.looks, FAMILY_ERROR / design.operators / 2)
    useful = zip(design.looks, critical, strict=True)
    return (look for look, outside in useful if outside >= 0 or look == design.looks[-1])
