"""A person asks for a bisection: it replays middle commits on one series before other work, and names the first bad."""

from dataclasses import dataclass, field
from math import expm1
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, select, update

from tests.worker.fixtures import git_history
from tests.worker.fixtures.nights import do_nights
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import Action, Commit, Job, Regression, RegressionEvent, Replay
from tilewatch.db.session import session
from tilewatch.worker.judging import bisection
from tilewatch.worker.judging.bisection import choose_middle, has_changed
from tilewatch.worker.judging.scope_judge import Launches, SeriesQuestion
from tilewatch.worker.submitting import submit_requests

TICKS = 8


@pytest.mark.parametrize(
    ("good", "bad", "skipped", "middle"),
    [(10, 20, (), 15), (10, 12, (), 11), (10, 11, (), None), (10, 20, (15,), 14), (10, 12, (11,), None)],
)
def test_the_middle_is_halved_and_what_cannot_be_replayed_is_passed_over(
    good: int, bad: int, skipped: tuple[int, ...], middle: int | None
) -> None:
    assert choose_middle(good, bad, skipped) == middle


@pytest.mark.parametrize("size", [0.05, -0.05])
def test_a_commit_has_the_change_where_more_than_half_of_it_is_there(size: float) -> None:
    for share, changed in ((0.0, False), (0.4, False), (0.6, True), (1.0, True), (-1.0, False)):
        launches = Launches((100.0,) * 3, (100.0 * (1 + size * share),) * 3)
        assert has_changed(launches, size) == changed
    assert has_changed(Launches((100.0,) * 3, (100.0, 105.0, 105.0)), expm1(0.05)), "one odd launch of three"


def test_a_bisection_names_the_first_bad_commit_by_replays_of_one_series(
    database_url: str, broker_url: str, tmp_path: Path
) -> None:
    """Nobody tested the comment and the cast. What the judge found by itself is taken away first."""
    shas = git_history.make(
        tmp_path / "watched", git_history.ADD, git_history.WORDS, git_history.CAST, git_history.NAME
    )
    settings = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url)
    settings = settings.model_copy(update={"sim_seed": git_history.SIM_SEED})
    context = do_nights(settings, shas[git_history.ADD], shas[git_history.NAME])
    with session(database_url) as opened:
        ids = {commit.subject: commit.id for commit in opened.scalars(select(Commit))}
        number = opened.scalars(select(Regression.id)).one()
        wide = {"good_commit_id": ids[git_history.ADD], "bad_commit_id": ids[git_history.NAME]}
        opened.execute(update(Regression).values(**wide))
        opened.execute(delete(Replay))
        opened.execute(delete(Job).where(Job.kind.in_(("prepare", "confirm"))))
        actions.bisect(opened, number, "ada")
    for _ in range(TICKS):
        if submit_requests.carry_out(settings):
            break
        with session(database_url) as opened:
            assert set(opened.scalars(select(Job.priority).where(Job.state == "queued"))) == {Priority.BISECT}
        do_all_jobs(context)
    with session(database_url) as opened:
        (regression,) = opened.scalars(select(Regression))
        assert (regression.good_commit_id, regression.bad_commit_id) == (ids[git_history.WORDS], ids[git_history.CAST])
        asked = opened.scalars(select(Action)).one()
        assert (asked.state, asked.outcome) == ("done", f"the first bad commit is {shas[git_history.CAST][:10]}")
        event = opened.scalars(select(RegressionEvent).where(RegressionEvent.action == "bisect")).one()
        assert (event.who, event.note) == ("ada", asked.outcome)
        assert len(set(opened.scalars(select(Replay.problem)))) == 1, "the worst series alone"


@dataclass(frozen=True)
class Branch:
    """Commits after 10, the last good one, up to 20. Those from 14 on take 5 % more."""

    measured: tuple[int, ...] = (3, 8, 10, 20)
    left: tuple[int, ...] = ()  # commits that are no longer on the branch
    unknown: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    compared: list[tuple[int, int]] = field(default_factory=list)
    queued: list[tuple[int, Priority]] = field(default_factory=list)

    def find_winner(self, build: int, *_: object) -> str | None:
        return "winner" if build in self.measured else None

    def list_between(self, good: int, bad: int) -> list[int]:
        return [build for build in range(good + 1, bad) if build not in self.left]

    def find_pair(self, question: SeriesQuestion, _: object) -> int | None:
        self.compared.append((question.base, question.head))
        return None if question.head in self.unknown else question.head

    def next_launches(self, _question: object, build: int, _stored: object) -> Launches | None:
        if build in self.awaited:
            return None
        return Launches() if build in self.failed else Launches((100.0,) * 3, (105.0 if build >= 14 else 100.0,) * 3)

    def bisect(self, monkeypatch: pytest.MonkeyPatch, span: object) -> str | None:
        """Returns the range that is stored in the end, and how many commits are left in it."""
        nights = [SimpleNamespace(position=each) for each in (3, 8, 10, 20)]

        def queue(asked: SimpleNamespace, priority: Priority) -> None:
            self.queued.append((asked.key, priority))

        night = SimpleNamespace(history=self, facts=(), queue=queue)
        fakes: dict[tuple[object, str], object] = {
            (bisection.judging, "find_regression_range"): lambda *_: span,
            (bisection.judging, "read_scope"): lambda *_: SimpleNamespace(submission_id=1),
            (bisection.judging, "list_nights"): lambda *_: nights,
            (bisection.judging, "was_given_up"): lambda _opened, key, _night: key in self.given_up,
            (bisection, "open_night"): lambda *_: night,
            (bisection.replay_answers, "find_stored_launches"): lambda _facts, build: build,
            (bisection.replay_answers, "next_launches"): self.next_launches,
            (bisection.replay_answers, "make_question"): lambda _scope, build, *_, **__: SimpleNamespace(key=build),
            (bisection, "_store"): lambda _opened, _history, _id, _who, good, bad, left: (
                f"{good} to {bad}, {left} left"
            ),
        }
        for (module, name), fake in fakes.items():
            monkeypatch.setattr(module, name, fake)
        return bisection.carry_on(None, None, 7, "ada")  # type: ignore[arg-type]  # nothing of them is read


SPAN = SimpleNamespace(run_id=1, kernel="k", problem="p", good_position=10, bad_position=20, size=0.05)


@pytest.mark.parametrize(
    ("branch", "found", "middles"),
    [
        (Branch(), "13 to 14, 0 left", [15, 12, 13, 14]),
        (Branch(left=(13, 14)), "12 to 15, 0 left", [15, 12]),
        (Branch(unknown=(13, 14)), "12 to 15, 2 left", [15, 12, 13, 14]),
        (Branch(failed=(13,)), "12 to 14, 1 left", [15, 12, 13, 14]),
        (Branch(awaited=(13,), given_up=(13,)), "12 to 14, 1 left", [15, 12, 13, 14]),
        (Branch(awaited=(12,), given_up=(13,)), None, [15, 12]),
        (Branch(unknown=tuple(range(11, 20))), "10 to 20, 9 left", [15, 14, 16, 13, 17, 12, 18, 11, 19]),
    ],
)
def test_a_bisection_halves_the_range_and_passes_over_what_has_no_launches(
    monkeypatch: pytest.MonkeyPatch, branch: Branch, found: str | None, middles: list[int]
) -> None:
    assert branch.bisect(monkeypatch, SPAN) == found
    assert branch.compared == [(10, middle) for middle in middles], "with the last good commit"
    assert branch.queued == ([(12, Priority.BISECT)] if found is None else [])


def test_a_bisection_compares_with_the_newest_measured_commit_before_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branch = Branch(measured=(3, 8, 20))
    assert branch.bisect(monkeypatch, SPAN) == "13 to 14, 0 left"
    assert {base for base, _ in branch.compared} == {8}
    nothing = "no commit before the range was measured, so nothing can be compared with"
    assert Branch(measured=(20,)).bisect(monkeypatch, SPAN) == nothing
    assert Branch().bisect(monkeypatch, None) == "there is no regression 7 any more"


@pytest.mark.parametrize(
    ("left", "outcome"),
    [
        (0, "the first bad commit is bbbbbbbbbb"),
        (1, "2 commits are left, up to bbbbbbbbbb: those between cannot be replayed"),
        (4, "5 commits are left, up to bbbbbbbbbb: those between cannot be replayed"),
    ],
)
def test_what_is_left_of_a_range_counts_its_last_commit(
    left: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrowed: list[tuple[object, ...]] = []
    monkeypatch.setattr(bisection.regressions, "narrow", lambda _, *what: narrowed.append(what))
    history = SimpleNamespace(commit_id={10: 1, 15: 6}.get, sha={15: "b" * 40}.get)
    stored = bisection._store(None, history, 7, "ada", 10, 15, left)  # type: ignore[arg-type]
    assert stored == outcome
    assert narrowed == [(7, "ada", 1, 6, outcome)]
    unknown = bisection._store(None, history, 7, "ada", 9, 15, left)  # type: ignore[arg-type]
    assert unknown == "its commits are not in the watched repository"
