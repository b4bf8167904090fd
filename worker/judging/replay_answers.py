"""Finds the answers to questions among the stored replays, by the machine code that was compared. Writes nothing.
Launches of machine code answer for every commit with this code. Two commits with the same code need no GPU."""

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
    """One of the two commits of a question, with its winner if it was measured and the hash of its code if known.
    `next_won` is the winner at the next measured commit: the best guess of the config that would have won here."""

    commit_id: int
    sha: str
    won: Winner | None
    next_won: Winner | None
    code_sha256: str | None


@dataclass(frozen=True)
class Pair:
    """The two commits of a question about a kernel and problem. `identical` is True if their machine code is equal."""

    kernel: str
    problem: str
    base: End
    head: End
    identical: bool


@dataclass(frozen=True)
class StoredLaunches:
    """All stored launches of a pair. `failure` is the reason why no more will come; None if more may come."""

    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    failure: str | None

    def of(self, question: SeriesQuestion) -> Launches:
        """Returns the launches that belong to a question, perhaps fewer than the question asks for."""
        part = slice(question.launches_used, question.launches_used + question.launches)
        return Launches(self.base_us[part], self.head_us[part])


def find_stored_launches(facts: Sequence[ReplayFact], pair: Pair) -> StoredLaunches:
    """Returns the launches of the pair's commits and of its machine code, in the order in which they ran. A replay with
    a newer compiler makes other machine code of the commits. If earlier replays of that code made the replay
    unnecessary, then their launches belong to the pair too."""
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
    """Returns the launches that answer a question, or fewer launches if no more can be measured. Returns None while
    launches are still to be measured."""
    if pair.identical:
        return Launches((SAME,) * question.launches, (SAME,) * question.launches)
    launches = stored.of(question)
    if len(launches.base_us) < question.launches and stored.failure is None:
        return None
    return launches


def find_code(facts: Sequence[ReplayFact], kernel: str, problem: str, commit_id: int) -> str | None:
    """Returns the hash of the machine code that a replay compiled of a commit; None if no replay compiled it."""
    for fact in facts:
        if (fact.kernel, fact.problem) == (kernel, problem):
            if fact.good_commit_id == commit_id and fact.good_code is not None:
                return fact.good_code
            if fact.bad_commit_id == commit_id and fact.bad_code is not None:
                return fact.bad_code
    return None


def has_one_compiler(pair: Pair) -> bool:
    """Returns whether one compiler made both sides, so that a replay of their cubins compares only the commits."""
    base, head = pair.base.won, pair.head.won
    return base is not None and head is not None and base.compiler == head.compiler


def make_sides(pair: Pair, *, compiled: bool) -> tuple[BuildSide, BuildSide]:
    """Returns both commits of a pair as sides of a replay job, with their stored cubins if `compiled`, else without."""
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
    """Returns the request to replay a pair until `launches` launches are stored, with stored cubins if `compiled`."""
    start = len(stored.base_us)
    sides = make_sides(pair, compiled=compiled)
    ends = f"{pair.base.sha}:{pair.head.sha}"
    return BuildQuestion.of(scope, (pair.kernel, pair.problem), ends, sides, start=start, launches=launches - start)


def _ends(fact: ReplayFact) -> tuple[int, int]:
    return fact.good_commit_id, fact.bad_commit_id


def _codes(fact: ReplayFact) -> tuple[str | None, str | None]:
    return fact.good_code, fact.bad_code
