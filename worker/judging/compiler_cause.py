"""The other half of the experiment: one commit under two compilers, when both changed from one night to the next.

Replays of two commits are compiled by one compiler and tell what the commit did; this replay, of the commit before as
both compilers made it, tells what the compiler did. A driver cannot be put back, so it is only named (explain.py).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.step_queries import judging, winners
from tilewatch.db.step_queries.judging import Point, PreviousRun, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, estimate_pair
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.scope_judge import Series
from tilewatch.worker.queue import follow_up

LAUNCHES = 8
"""One question and no more. Launches of an FP8 product scatter by 0.14 % between the sides (H200, 2026-11), so eight
see a change of 0.3 % at five deviations."""


@dataclass(frozen=True)
class Doubt:
    """A series of which the compiler changed. `payload` lacks what the judge adds to every question."""

    point: Point
    good_run_id: int
    good_commit_id: int
    moved: float
    what: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What the replay says of the compiler: `found` where it could be held; `identical` machine code needs none."""

    found: Estimate | None
    identical: bool

    def is_change(self, policy: Policy) -> bool:
        found = self.found
        return (
            found is not None
            and abs(found.deviations) >= policy.believed_deviations
            and abs(found.size) >= policy.min_change
        )


def doubts(
    session: Session,
    context: Context,
    scope: Scope,
    before: Mapping[Series, PreviousRun],
    points: Mapping[Series, Point],
) -> list[Doubt]:
    """The series that moved tonight and of which another compiler made what won the night before."""
    moved = [
        (point, earlier)
        for series, point in points.items()
        if (earlier := before.get(series)) is not None
        and abs(point.time_us / earlier.time_us - 1.0) >= context.policy.min_change
    ]
    won = winners.read_winners_of_runs(session, [each.run_id for pair in moved for each in pair])
    store = CubinStore(context.store_url)
    found = []
    for point, earlier in moved:
        old, new = won.get(earlier.run_id), won.get(point.run_id)
        if old is None or new is None or old.compiler == new.compiler or store.outcome(old.content_key) is None:
            continue
        found.append(_doubt(scope, point, earlier, old, new))
    return found


def heard(session: Session, key: str) -> Told | None:
    """None while the replay is still to be held."""
    fact = judging.find_replay(session, key)
    if fact is None:
        return Told(None, False) if judging.was_given_up(session, key) else None
    if fact.good_code is not None and fact.good_code == fact.bad_code:
        return Told(None, True)
    pairs = list(zip(fact.good_us, fact.bad_us, strict=True))
    return Told(estimate_pair(replay_answers.differences(pairs), 0.0) if pairs else None, False)


def sentence(doubt: Doubt, told: Told) -> str:
    if told.identical:
        return f"the compiler changed ({doubt.what}) and makes the same machine code"
    if told.found is None:
        return f"the compiler changed ({doubt.what}), and the commit before could not be replayed under both"
    low, high = told.found.size - 1.96 * told.found.error, told.found.size + 1.96 * told.found.error
    return f"the commit before, compiled by both ({doubt.what}), differs by {low:+.2%} to {high:+.2%}"


def _doubt(scope: Scope, point: Point, before: PreviousRun, old: winners.Winner, new: winners.Winner) -> Doubt:
    side = {"commit_id": before.commit_id, "sha": before.sha, "measured": True}
    good = {name: value for name, value in asdict(old).items() if name in (*follow_up.CODE, "config_id", "params")}
    ends = f"{before.sha}:toolchain:{before.run_id}-{point.run_id}:0+{LAUNCHES}"
    return Doubt(
        point=point,
        good_run_id=before.run_id,
        good_commit_id=before.commit_id,
        moved=point.time_us / before.time_us - 1.0,
        what=f"{old.compiler} -> {new.compiler}",
        payload={
            "key": f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{point.kernel}:{point.problem}:{ends}",
            "kernel": point.kernel,
            "problem": point.problem,
            "axis": "toolchain",
            "start": 0,
            "launches": LAUNCHES,
            "good": {**side, **good},
            "bad": {**side, **good, **dict.fromkeys(follow_up.CODE)},
        },
    )
