"""What replays have said so far, by the code that they compared; and what is still to be asked. Pure.

Code decides, not commits: a commit whose machine code is that of its neighbour needs no GPU, and launches of equal code
answer for every commit that has it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any

from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.step_queries.judging import ReplayFact
from tilewatch.db.step_queries.winners import Winner
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.queue import follow_up

SAME = 1.0
"""Identical machine code takes identical time by definition: such a launch is said to take this on both sides."""


@dataclass(frozen=True)
class End:
    """One end of a question: a commit, what won there if it was measured, and the code's hash where it is known.

    `next_won` is what won at the next measured commit: the best guess at what would have won here.
    """

    commit_id: int
    sha: str
    won: Winner | None
    next_won: Winner | None
    code_sha256: str | None


@dataclass(frozen=True)
class Pair:
    """The two ends of a question about one kernel and problem. `identical`: neither commit changed what won."""

    kernel: str
    problem: str
    good: End
    bad: End
    identical: bool


@dataclass(frozen=True)
class Heard:
    """What is on record of a pair: a median per launch and side, or why there will be none."""

    good_us: tuple[float, ...]
    bad_us: tuple[float, ...]
    failure: str | None


def heard(facts: Sequence[ReplayFact], pair: Pair) -> Heard:
    good_us: list[float] = []
    bad_us: list[float] = []
    failure = None
    for fact in facts:
        if (fact.kernel, fact.problem) == (pair.kernel, pair.problem) and _same(fact, pair):
            good_us += fact.good_us
            bad_us += fact.bad_us
            failure = failure if fact.failure == NOT_NEEDED else fact.failure or failure
    return Heard(tuple(good_us), tuple(bad_us), failure)


def answer(ask: ReplayQuestion, pair: Pair, found: Heard, told: int) -> ReplayAnswer | None:
    """The launches that come after those already told; fewer than asked for when there will be no more."""
    if pair.identical:
        return ReplayAnswer(ask.series, ask.good, ask.bad, (SAME,) * ask.launches, (SAME,) * ask.launches)
    there = slice(told, told + ask.launches)
    good_us, bad_us = found.good_us[there], found.bad_us[there]
    if len(good_us) < ask.launches and found.failure is None:
        return None
    return ReplayAnswer(ask.series, ask.good, ask.bad, good_us, bad_us)


def code_known(facts: Sequence[ReplayFact], kernel: str, problem: str, commit_id: int) -> str | None:
    """The code of a commit that was never measured, as a replay met it."""
    for fact in facts:
        if (fact.kernel, fact.problem) == (kernel, problem):
            if fact.good_commit_id == commit_id and fact.good_code is not None:
                return fact.good_code
            if fact.bad_commit_id == commit_id and fact.bad_code is not None:
                return fact.bad_code
    return None


def is_ready(pair: Pair) -> bool:
    """Whether both sides were made by one compiler, so that they can be compared as they are."""
    good, bad = pair.good.won, pair.bad.won
    return good is not None and bad is not None and good.compiler == bad.compiler


def sides(pair: Pair) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both ends as a job's payload has them."""
    ready = is_ready(pair)
    either = pair.bad.won or pair.good.won
    assert either is not None, "a question has at least one end that was measured"
    return _side(pair.good, either, ready), _side(pair.bad, either, ready)


def _side(end: End, either: Winner, ready: bool) -> dict[str, Any]:
    won = asdict(end.won or end.next_won or either)
    code = {name: won[name] if ready else None for name in follow_up.CODE}
    return {
        "commit_id": end.commit_id,
        "sha": end.sha,
        "config_id": won["config_id"],
        "params": won["params"],
        "measured": end.won is not None,
        **code,
    }


def _same(fact: ReplayFact, pair: Pair) -> bool:
    if (fact.good_commit_id, fact.bad_commit_id) == (pair.good.commit_id, pair.bad.commit_id):
        return True
    codes = (pair.good.code_sha256, pair.bad.code_sha256)
    return None not in codes and (fact.good_code, fact.bad_code) == codes


def differences(launches: Sequence[tuple[float, float]]) -> list[float]:
    """How much slower the bad side of each launch was, as confirm.py counts it."""
    return [log(bad_us / good_us) for good_us, bad_us in launches]
