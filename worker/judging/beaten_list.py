"""Finds out by replays whether a config outside a kernel's short list is faster than every config of the list."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import expm1

from sqlalchemy.orm import Session

from tilewatch.configs import config_text
from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.query_parts import take_turns
from tilewatch.db.worker_reads import winners
from tilewatch.db.worker_reads.judging import Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.text import short_sha
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.compiler_cause import LAUNCHES, PairAnswer
from tilewatch.worker.judging.scope_judge import Series
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

BETTER_BY = 0.01
"""The least lead over the short list that justifies a replay, and the least by which it must exceed earlier leads."""


@dataclass(frozen=True)
class ListSuspicion:
    """A run whose fastest config `winner` is not in the short list. `listed` is the fastest config of the list."""

    point: Point
    listed: Winner
    winner: Winner
    question: BuildQuestion


def find_suspicions(
    session: Session, store: CubinStore, scope: Scope, points: Mapping[Series, Point]
) -> dict[Series, ListSuspicion]:
    """Returns the series in which a config outside the short list has a larger lead than on earlier nights."""
    listed = winners.read_beaten_lists(session, [point.run_id for point in points.values()], BETTER_BY)
    won = winners.read_winners_of_runs(session, list(listed))
    found = {}
    for series, point in points.items():
        base, head = listed.get(point.run_id), won.get(point.run_id)
        if base is not None and head is not None and all(store.outcome(each.content_key) for each in (base, head)):
            sides = tuple(BuildSide.of_winner(each, scope.commit_id, scope.sha) for each in (base, head))
            about, ends = (point.kernel, point.problem), f"{scope.sha}:config:{point.run_id}"
            question = BuildQuestion.of(scope, about, ends, (sides[0], sides[1]), axis="config", launches=LAUNCHES)
            found[series] = ListSuspicion(point, base, head, question)
    return found


def is_beaten(answer: PairAnswer | None, policy: Policy) -> bool:
    return answer is not None and answer.size is not None and answer.size.size < 0 and answer.is_change(policy)


def write_sentence(suspicion: ListSuspicion, answer: PairAnswer) -> str:
    base, head = (config_text(each.params) for each in (suspicion.listed, suspicion.winner))
    if answer.size is None:
        how = "has the same machine code as" if answer.identical else "could not be replayed beside"
    else:
        size, low, high = map(expm1, (answer.size.size, *answer.size.interval))
        how = f"differs by {size:+.1%} ({low:+.1%} to {high:+.1%}) from"
    return f"{head}, which is outside the short list, {how} {base}, the best of it"


def open_list_alarms(
    session: Session, scope: Scope, policy: Policy, answered: Iterable[tuple[ListSuspicion, PairAnswer | None]]
) -> None:
    """Opens an alarm for each kernel with a confirmed faster config outside its short list."""
    lines = defaultdict(list)
    for suspicion, answer in answered:
        if answer is not None and is_beaten(answer, policy):
            lines[suspicion.point.kernel].append(f"{suspicion.point.problem}: {write_sentence(suspicion, answer)}")
    for kernel, found in lines.items():
        take_turns(session, life.WATCHING)
        life.open_once(
            session,
            key=f"{life.BEATEN_LIST}/{kernel}/{scope.gpu_model}/{scope.submission_id}",
            kind=life.BEATEN_LIST,
            subject=f"{kernel} of {scope.repository} on {scope.gpu_model} at {short_sha(scope.sha)}",
            detail="\n  ".join(("Replays confirmed a faster config with this compiler:", *sorted(found))),
        )
