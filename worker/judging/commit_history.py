"""Finds the commit and the machine code of each build. A build is the position of a commit on its branch."""

import datetime as dt
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise, takewhile
from operator import itemgetter
from pathlib import Path

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.worker_reads import judging, winners
from tilewatch.db.worker_reads.judging import Night, ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.text import short_sha
from tilewatch.worker.git import commits
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import Series, SeriesQuestion

FARTHEST = 2000
"""The most commits that are read from the clone. Two nights always have fewer commits between them."""


class History:
    """Looks up commits, best configs and replays of a branch. Without a `clone`, only measured commits are known."""

    def __init__(
        self,
        session: Session,
        clone: Path | None,
        scope: Scope,
        nights: Sequence[Night],
        facts: Sequence[ReplayFact] = (),
    ) -> None:
        self._session, self._clone, self._scope = session, clone, scope
        self._facts = facts
        self._nights = {night.position: night for night in nights}
        self._commit_ids: dict[int, int] = {night.position: night.commit_id for night in nights}
        self._builds = sorted(self._nights)
        self._sides: dict[int, dict[tuple[str, str], dict[str, Winner]]] = {}

    def commit_id(self, build: int) -> int | None:
        """Returns the id of a build's commit and stores a missing commit; None if the build is unknown."""
        if build not in self._commit_ids:
            sha = self._unmeasured.get(build)
            if sha is None or self._clone is None:
                return None
            commit = asdict(commits.resolve(self._clone, sha))
            own = {
                "repository": self._scope.repository,
                "position": build,
                "committed_at": dt.datetime.fromisoformat(commit["committed_at"]),
            }
            self._commit_ids[build] = fact_writes.add_commit(self._session, **{**commit, **own}, corrects=False)
        return self._commit_ids[build]

    def sha(self, build: int) -> str:
        """Returns the full hash of a build's commit. Raises KeyError if the commit is unknown."""
        night = self._nights.get(build)
        return night.sha if night else self._unmeasured[build]

    def list_between(self, base: int, head: int) -> list[int]:
        """Lists the positions between two commits, without commits that are no longer on the branch."""
        between = range(base + 1, head)
        ends = [self._find_sha(build) for build in (base, head)]
        if self._clone is None or ends[0] is None or ends[1] is None:
            return list(between)
        path = commits.list_path(self._clone, ends[0], ends[1])
        return [build for build in between if self._find_sha(build) in path]

    def _find_sha(self, build: int) -> str | None:
        return self._nights[build].sha if build in self._nights else self._unmeasured.get(build)

    def find_winner(self, build: int, kernel: str, problem: str, host: str = "") -> Winner | None:
        """Returns the best config for a problem at a build: of this host, or else of the first run there. Returns None
        if the problem was not measured there."""
        night = self._nights.get(build)
        return None if night is None else self._won_at(night.commit_id, kernel, problem, host)

    def find_pair(self, question: SeriesQuestion, facts: Sequence[ReplayFact]) -> Pair | None:
        """Returns the two commits that a replay compares; None if a commit is unknown or neither was measured."""
        kernel, problem, _ = question.series
        base, head = (self._end(build, question.series, facts) for build in (question.base, question.head))
        if base is None or head is None or (base.won is None and head.won is None):
            return None
        own = _facts_of(facts, kernel, problem)
        is_identical = self._is_identical(base, head) or _were_identical(own, base.commit_id, head.commit_id)
        return Pair(kernel, problem, base, head, is_identical)

    def find_range(
        self, series: Series, first_bad: int, facts: Sequence[ReplayFact], last_good: int | None = None
    ) -> tuple[int, int]:
        """Returns the ids of the last tested commit before a change and the first tested commit after it."""
        kernel, problem, _ = series
        commit_ids = winners.read_measured_commits(self._session, self._scope, kernel, problem)
        own = _facts_of(facts, kernel, problem)
        codes: dict[int, str | None] = {}
        for fact in own:
            commit_ids |= {fact.good_position: fact.good_commit_id, fact.bad_position: fact.bad_commit_id}
            codes |= {fact.good_position: fact.good_code, fact.bad_position: fact.bad_code}
        base = first_bad - 1 if last_good is None else last_good
        before = max((build for build in commit_ids if build <= base), default=min(commit_ids))
        since = sorted(build for build in commit_ids if build >= first_bad)
        # Replays may have found the old machine code at later commits: these are before the change too.
        old_code = codes.get(max((build for build in codes if build <= base), default=base))
        while len(since) > 1 and old_code is not None and codes.get(since[0]) == old_code:
            before = since.pop(0)
        return commit_ids[before], commit_ids[since[0] if since else max(commit_ids)]

    def find_run_at(self, series: Series, commit_id: int) -> int | None:
        """Returns the id of a run at a commit, or of one with the code that a replay found there; None without."""
        kernel, problem, host = series
        won = self._won_at(commit_id, *series)
        if won is None and (code := replay_answers.find_code(self._facts, kernel, problem, commit_id)) is not None:
            newest = (self._winners_at(self._nights[build].commit_id, kernel, problem) for build in self._builds[::-1])
            runs = [(at == host, there) for each in newest for at, there in each.items() if there.code_sha256 == code]
            won = max(runs, key=itemgetter(0), default=(False, None))[1]
        return None if won is None else won.run_id

    def find_previous(self, series: Series, build: int) -> tuple[int, bool] | None:
        """Returns (previous commit's position, whether the fastest code was the same); None without a previous run."""
        kernel, problem, _ = series
        here = self.find_winner(build, *series)
        if here is None:
            return None
        for before in reversed(self._builds[: bisect_left(self._builds, build)]):
            there = self.find_winner(before, *series)
            if there is not None:
                ends = self._nights[before].commit_id, self._nights[build].commit_id
                own = _facts_of(self._facts, kernel, problem)
                return before, self._is_same(there, here) or _were_identical(own, *ends)
        return None

    def find_same_code(self, series: Series, build: int) -> str | None:
        """Returns the previous commit's short hash if the winning machine code has not changed since; else None."""
        before = self.find_previous(series, build)
        return short_sha(self._nights[before[0]].sha) if before is not None and before[1] else None

    @cached_property
    def _unmeasured(self) -> dict[int, str]:
        """Maps builds without a run to the hashes of their commits. The map is empty without a clone."""
        if self._clone is None:
            return {}
        on_record = judging.read_shas(self._session, self._scope)
        known = on_record | {build: night.sha for build, night in self._nights.items()}
        found = known | _find_first_parents(self._clone, self._scope.sha, known)
        return {build: sha for build, sha in found.items() if build not in self._nights}

    def _end(self, build: int, series: Series, facts: Sequence[ReplayFact]) -> End | None:
        commit_id = self.commit_id(build)
        if commit_id is None:
            return None
        won = self.find_winner(build, *series)
        code = won.code_sha256 if won else replay_answers.find_code(facts, *series[:2], commit_id)
        next_won = None if won else self._next_won(build, series)
        return End(commit_id, self.sha(build), won, next_won, code)

    def _next_won(self, build: int, series: Series) -> Winner | None:
        later = self._builds[bisect_left(self._builds, build) :]
        return next((won for each in later if (won := self.find_winner(each, *series)) is not None), None)

    def _is_identical(self, base: End, head: End) -> bool:
        if base.code_sha256 is not None and base.code_sha256 == head.code_sha256:
            return True
        return base.won is not None and head.won is not None and self._is_same(base.won, head.won)

    def _is_same(self, base: Winner, head: Winner) -> bool:
        """Returns whether two runs have equal sources, or equal machine code for both of their best configs."""
        if base.source_sha256 == head.source_sha256:
            return True
        theirs = self._code_at(head, base.config_id)
        ours = self._code_at(base, head.config_id)
        return (theirs, ours) == (base.code_sha256, head.code_sha256)

    def _won_at(self, commit_id: int, kernel: str, problem: str, host: str) -> Winner | None:
        by_host = self._winners_at(commit_id, kernel, problem)
        return by_host.get(host) or next(iter(by_host.values()), None)

    def _winners_at(self, commit_id: int, kernel: str, problem: str) -> Mapping[str, Winner]:
        """Maps each host to its best config for a problem at a commit."""
        if commit_id not in self._sides:
            self._sides[commit_id] = winners.read_winners_at(self._session, self._scope, commit_id)
        return self._sides[commit_id].get((kernel, problem), {})

    def _code_at(self, won: Winner, config_id: int) -> str | None:
        """Returns the hash of a config's machine code in the sweep of `won`; None if the config did not compile."""
        if won.config_id == config_id:
            return won.code_sha256
        return winners.find_code(self._session, won.sweep_id, config_id)


def _find_first_parents(clone: Path, newest: str, known: Mapping[int, str]) -> dict[int, str]:
    """Returns {commit position: hash} for the unmeasured commits between the `known` commits."""
    found: dict[int, str] = {}
    line = commits.first_parents(clone, newest, FARTHEST)
    places, shas = {sha: place for place, sha in enumerate(line)}, set(known.values())
    for before, position in pairwise([0, *sorted(known)]):
        if position - before < 2 or position <= max(known) - FARTHEST:
            continue
        place = places.get(known[position])
        beside = commits.first_parents(clone, known[position], position - before + 1) if place is None else []
        leading = beside[1:] if place is None else line[place + 1 : place + position - before + 1]
        free = list(takewhile(lambda sha: sha not in shas, leading))
        if before and leading[len(free) : len(free) + 1] != [known[before]]:
            path = commits.list_path(clone, known[before], known[position])
            free = [sha for sha in free if sha in path]
        found |= {position - back: sha for back, sha in enumerate(free[: position - before - 1], 1)}
    return found


def _facts_of(facts: Sequence[ReplayFact], kernel: str, problem: str) -> list[ReplayFact]:
    return [fact for fact in facts if (fact.kernel, fact.problem) == (kernel, problem)]


def _were_identical(facts: Sequence[ReplayFact], base_id: int, head_id: int) -> bool:
    """Returns whether a replay found the same machine code for two commits."""
    return any(
        (fact.good_commit_id, fact.bad_commit_id) == (base_id, head_id)
        and fact.good_code is not None
        and fact.good_code == fact.bad_code
        for fact in facts
    )
