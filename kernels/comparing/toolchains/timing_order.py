"""Decides which pairs the GPU times next, and times them until every answer is sure or the time is spent.

Every pair is launched once to find the worst. These come first, PAIRS_AT_ONCE at a time, up to the first look at which
an answer can be sure. Pairs that are still open get more looks when all have had one. Choosing by early launches adds
no error: the intervals of kernels/comparing/sequential.py hold whenever somebody stops.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewatch.kernels.comparing.sequential import list_critical_values
from tilewatch.kernels.comparing.toolchains.bench import PAIRS_AT_ONCE, LaunchFailed, LaunchResult, PairBench, PairWork
from tilewatch.kernels.comparing.toolchains.safety_verdict import Family, Timing, is_answered, judge_timing
from tilewatch.kernels.comparing.verdict import FAMILY_ERROR, Design

MOST_DEATHS = 3
"""Number of dead processes after which a pair is given up."""

Key = tuple[str, str]
"""A kernel and a problem."""


class TimingRun:
    """Times pairs to answer one question. `timings` holds all results, also of earlier runs."""

    def __init__(
        self, works: Sequence[PairWork], timings: dict[Key, Timing], family: Family, on_timing: Callable[[Timing], None]
    ) -> None:
        """`timings` has an entry for each work, without launches if there are none yet."""
        self._works = {(work.kernel, work.problem): work for work in works}
        self.timings, self._family, self._on_timing = timings, family, on_timing
        self._deaths: Counter[Key] = Counter()

    def list_open(self) -> list[Key]:
        """Lists the pairs whose answer is not sure: first those that were never launched, then the worst."""
        return sorted((key for key in self._works if not is_answered(self.timings[key], self._family)), key=self._rank)

    def run(self, bench: PairBench, is_spent: Callable[[], bool]) -> None:
        """Times until every answer is sure or `is_spent` returns True."""
        self._launch_until(bench, 1, is_spent)
        for look in _list_useful_looks(self._family.design):
            self._launch_until(bench, look, is_spent)

    def _launch_until(self, bench: PairBench, launches: int, is_spent: Callable[[], bool]) -> None:
        waiting = [key for key in self.list_open() if self._count(key) < launches]
        for start in range(0, len(waiting), PAIRS_AT_ONCE):
            part = waiting[start : start + PAIRS_AT_ONCE]
            while todo := [key for key in part if self._count(key) < launches and self.timings[key].failure is None]:
                if is_spent():
                    return
                for work, result in bench.launch_each([self._next(key) for key in todo]):
                    self._add((work.kernel, work.problem), result)
                    if is_spent():
                        return

    def _next(self, key: Key) -> PairWork:
        return replace(self._works[key], launches=self._count(key))

    def _add(self, key: Key, result: LaunchResult) -> None:
        timing = self.timings[key]
        if isinstance(result, LaunchFailed):
            self._deaths[key] += 1
            if not result.is_final and self._deaths[key] < MOST_DEATHS:
                return
            timing = replace(timing, failure=result.failure, is_of_head=result.is_of_head)
        else:
            timing = replace(
                timing, base_us=(*timing.base_us, result.base_us), head_us=(*timing.head_us, result.head_us)
            )
        self.timings[key] = timing
        self._on_timing(timing)

    def _count(self, key: Key) -> int:
        return len(self.timings[key].base_us)

    def _rank(self, key: Key) -> float:
        verdict = judge_timing(self.timings[key], self._family)
        return -math.inf if verdict is None else -verdict.change


def _list_useful_looks(design: Design) -> Iterator[int]:
    """Yields the looks at which a "slower" can be sure. With many operators the first looks cannot."""
    critical = list_critical_values(design.looks, FAMILY_ERROR / design.operators / 2)
    return (look for look, outside in zip(design.looks, critical, strict=True) if outside >= 0)
