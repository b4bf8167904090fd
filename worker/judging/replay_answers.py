"""Finds the stored launches that a replay can use, including those of other commits with the same machine code."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.worker_reads.judging import ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.judging.scope_judge import Launches, SeriesQuestion
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

SAME = 1.0
"""The time in us that stands for both sides of identical machine code, whose launches are not measured."""


@dataclass(frozen=True)
class End:
    """A commit in a replay. `won` is its best config; if it was not measured, `next_won` is a later commit's."""

    commit_id: int
    sha: str
    won: Winner | None
    next_won: Winner | None
    code_sha256: str | None


@dataclass(frozen=True)
class Pair:
    """Two commits to replay. `identical` is True if their machine code is equal."""

    kernel: str
    problem: str
    base: End
    head: End
    identical: bool


@dataclass(frozen=True)
class StoredLaunches:
    """The stored launches of two commits. `failure` is the reason if no more launches will come, else None."""

    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    failure: str | None

    def of(self, question: SeriesQuestion) -> Launches:
        """Returns the next unused launches for a replay, at most as many as the replay wants."""
        part = slice(question.launches_used, question.launches_used + question.launches)
        return Launches(self.base_us[part], self.head_us[part])


def find_stored_launches(facts: Sequence[ReplayFact], pair: Pair) -> StoredLaunches:
    """Returns the stored launches of two commits or of the same machine code, in the order in which they ran."""
    base_us: list[float] = []
    head_us: list[float] = []
    failure = None
    own = [fact for fact in facts if (fact.kernel, fact.problem) == (pair.kernel, pair.problem)]
    ends = (pair.base.commit_id, pair.head.commit_id)
    known = {(pair.base.code_sha256, pair.head.code_sha256)}
    known |= {_codes(fact) for fact in own if _ends(fact) == ends and fact.failure == NOT_NEEDED}
    for fact in own:
        if _ends(fact) == ends or (None not in _codes(fact) and _codes(fact) in known):
            base_us += fact.good_us
            head_us += fact.bad_us
            failure = failure if fact.failure == NOT_NEEDED else fact.failure or failure
    return StoredLaunches(tuple(base_us), tuple(head_us), failure)


def next_launches(question: SeriesQuestion, pair: Pair, stored: StoredLaunches) -> Launches | None:
    """Returns the stored launches for a replay; None if the replay needs more launches and may still get them."""
    if pair.identical:
        return Launches((SAME,) * question.launches, (SAME,) * question.launches)
    launches = stored.of(question)
    if len(launches.base_us) < question.launches and stored.failure is None:
        return None
    return launches


def find_code(facts: Sequence[ReplayFact], kernel: str, problem: str, commit_id: int) -> str | None:
    """Returns the hash of the machine code that a replay compiled for a commit; None without such a replay."""
    for fact in facts:
        if (fact.kernel, fact.problem) == (kernel, problem):
            if fact.good_commit_id == commit_id and fact.good_code is not None:
                return fact.good_code
            if fact.bad_commit_id == commit_id and fact.bad_code is not None:
                return fact.bad_code
    return None


def has_one_compiler(pair: Pair) -> bool:
    """Returns whether the same compiler made the cubins of both commits."""
    base, head = pair.base.won, pair.head.won
    return base is not None and head is not None and base.compiler == head.compiler


def make_sides(pair: Pair, *, compiled: bool) -> tuple[BuildSide, BuildSide]:
    """Returns (base, head) of a replay for its job, with their stored cubins if `compiled`."""
    either = pair.head.won or pair.base.won
    assert either is not None, "a question has at least one end that was measured"
    base, head = (
        BuildSide.of_winner(
            end.won or end.next_won or either, end.commit_id, end.sha, measured=end.won is not None, compiled=compiled
        )
        for end in (pair.base, pair.head)
    )
    return base, head


def make_question(scope: Scope, pair: Pair, stored: StoredLaunches, launches: int, *, compiled: bool) -> BuildQuestion:
    """Returns a replay request for the launches missing from a total of `launches`."""
    start = len(stored.base_us)
    sides = make_sides(pair, compiled=compiled)
    ends = f"{pair.base.sha}:{pair.head.sha}"
    return BuildQuestion.of(scope, (pair.kernel, pair.problem), ends, sides, start=start, launches=launches - start)


def _ends(fact: ReplayFact) -> tuple[int, int]:
    return fact.good_commit_id, fact.bad_commit_id


def _codes(fact: ReplayFact) -> tuple[str | None, str | None]:
    return fact.good_code, fact.bad_code
