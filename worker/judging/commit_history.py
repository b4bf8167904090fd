"""The commits and the code behind the builds that a judge counts in: a build is a commit's position.

Tested commits come from the database, those between them from the watched repository where it is at hand, so that a
bisection can ask for them. Reads; what it writes is that a commit exists that is about to be replayed.
"""

import datetime as dt
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property

from sqlalchemy.orm import Session

from tilewatch.db import record
from tilewatch.db.step_queries import winners
from tilewatch.db.step_queries.judging import Night, ReplayFact, Scope
from tilewatch.db.step_queries.winners import Winner
from tilewatch.kernels.recording.git_commit import NoHistory, repository_name
from tilewatch.text import short_sha
from tilewatch.worker import repository
from tilewatch.worker.context import Context
from tilewatch.worker.detection.replay_evidence import ReplayQuestion
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import Series

FARTHEST = 2000
"""Commits that are read from the repository: more than lie between two nights."""

"""Digits of a commit that people read."""


class History:
    def __init__(self, session: Session, context: Context, scope: Scope, nights: Sequence[Night]) -> None:
        self._session, self._place, self._scope = session, context, scope
        self._nights = {night.position: night for night in nights}
        self._known: dict[int, int] = {night.position: night.commit_id for night in nights}
        self._builds = sorted(self._nights)
        self._sides: dict[int, dict[tuple[str, str], Winner]] = {}

    def commit_id(self, build: int) -> int | None:
        """The commit at a build; one that nobody tested is put on record."""
        if build not in self._known:
            sha = self._untested.get(build)
            if sha is None:
                return None
            commit = asdict(repository.resolve(self._place.repository, sha))
            committed_at = dt.datetime.fromisoformat(commit["committed_at"])
            self._known[build] = record.add_commit(self._session, **{**commit, "committed_at": committed_at})
        return self._known[build]

    def side(self, build: int, kernel: str, problem: str) -> Winner | None:
        """What won at a build; None where it was not measured."""
        night = self._nights.get(build)
        return None if night is None else self._won_at(night.commit_id).get((kernel, problem))

    def pair(self, series: Series, ask: ReplayQuestion, facts: Sequence[ReplayFact]) -> Pair | None:
        """The two ends of a question; None where a commit is not to be found or neither end was measured."""
        kernel, problem, _ = series
        good, bad = (self._end(build, kernel, problem, facts) for build in (ask.good, ask.bad))
        if good is None or bad is None or (good.won is None and bad.won is None):
            return None
        met = [fact for fact in facts if (fact.kernel, fact.problem) == (kernel, problem)]
        return Pair(kernel, problem, good, bad, self._is_identical(good, bad) or _met_identical(met, good, bad))

    def span(self, series: Series, first_bad: int, facts: Sequence[ReplayFact]) -> tuple[int, int]:
        """The last commit before a change and the first with it, of those that were measured or replayed."""
        kernel, problem, _ = series
        known = winners.read_measured_commits(self._session, self._scope, kernel, problem)
        for fact in facts:
            if (fact.kernel, fact.problem) == (kernel, problem):
                known |= {fact.good_position: fact.good_commit_id, fact.bad_position: fact.bad_commit_id}
        before = [build for build in known if build < first_bad]
        since = [build for build in known if build >= first_bad]
        return known[max(before, default=min(known))], known[min(since, default=max(known))]

    def run_before(self, series: Series, commit_id: int) -> int | None:
        """A run of this kernel and problem at a commit, to compare with."""
        found = self._won_at(commit_id).get(series[:2])
        return None if found is None else found.run_id

    def since(self, series: Series, build: int) -> tuple[int, bool] | None:
        """The last build before this one at which a series was measured, and whether the code that won is still that.

        None where there is no such build, or what won at either end is not known.
        """
        kernel, problem, _ = series
        here = self.side(build, kernel, problem)
        if here is None:
            return None
        for before in reversed(self._builds[: bisect_left(self._builds, build)]):
            there = self.side(before, kernel, problem)
            if there is not None:
                return before, self._is_same(there, here)
        return None

    def same_as(self, series: Series, build: int) -> str | None:
        """The commit whose code still is what wins at a build, if the commit before it has it."""
        before = self.since(series, build)
        return short_sha(self._nights[before[0]].sha) if before is not None and before[1] else None

    @cached_property
    def _untested(self) -> dict[int, str]:
        """The commits before the night's own by position, as the repository has them; none when it is another one."""
        try:
            if repository_name(self._place.repository) != self._scope.repository:
                return {}
        except NoHistory:
            return {}
        shas = repository.first_parents(self._place.repository, self._scope.sha, FARTHEST)
        return {self._scope.position - back: sha for back, sha in enumerate(shas)}

    def _end(self, build: int, kernel: str, problem: str, facts: Sequence[ReplayFact]) -> End | None:
        commit_id = self.commit_id(build)
        if commit_id is None:
            return None
        won = self.side(build, kernel, problem)
        code = won.code_sha256 if won else replay_answers.code_known(facts, kernel, problem, commit_id)
        night = self._nights.get(build)
        sha = night.sha if night else self._untested[build]
        next_won = None if won else self._next_won(build, kernel, problem)
        return End(commit_id, sha, won, next_won, code)

    def _next_won(self, build: int, kernel: str, problem: str) -> Winner | None:
        later = self._builds[bisect_left(self._builds, build) :]
        return next((won for each in later if (won := self.side(each, kernel, problem)) is not None), None)

    def _is_identical(self, good: End, bad: End) -> bool:
        if good.code_sha256 is not None and good.code_sha256 == bad.code_sha256:
            return True
        return good.won is not None and bad.won is not None and self._is_same(good.won, bad.won)

    def _is_same(self, good: Winner, bad: Winner) -> bool:
        """Whether the commits between changed nothing of what won: the file is the same, or the machine code is; where
        another config of a tie won, the machine code of both configs."""
        if good.source_sha256 == bad.source_sha256:
            return True
        theirs = self._code_at(bad, good.config_id)
        ours = self._code_at(good, bad.config_id)
        return (theirs, ours) == (good.code_sha256, bad.code_sha256)

    def _won_at(self, commit_id: int) -> dict[tuple[str, str], Winner]:
        if commit_id not in self._sides:
            self._sides[commit_id] = winners.read_winners_at(self._session, self._scope, commit_id)
        return self._sides[commit_id]

    def _code_at(self, won: Winner, config_id: int) -> str | None:
        """The code of a config in the sweep that this winner is from."""
        if won.config_id == config_id:
            return won.code_sha256
        return winners.find_code(self._session, won.sweep_id, config_id)


def _met_identical(facts: Sequence[ReplayFact], good: End, bad: End) -> bool:
    """Whether both, compiled by one compiler, turned out to be the same code."""
    return any(
        (fact.good_commit_id, fact.bad_commit_id) == (good.commit_id, bad.commit_id)
        and fact.good_code is not None
        and fact.good_code == fact.bad_code
        for fact in facts
    )
