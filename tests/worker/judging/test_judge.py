"""Nights of real commits, compiled here and timed by the simulated GPU: suspected, replayed, explained, told apart."""

import contextlib
import datetime as dt
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import TextClause, delete, func, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.leases import ENDED_LEASE
from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.celery_process import all_done, celery_worker, wait_for
from tests.worker.fixtures.nights import FIRST_NIGHT, do_nights, read_verdicts, submit_night
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.lifecycle import actions, jobs, suspicions
from tilewatch.db.lifecycle.actions import JobSelection
from tilewatch.db.lifecycle.jobs import MAX_ATTEMPTS, Priority
from tilewatch.db.models import (
    Commit,
    Job,
    Regression,
    RegressionEvent,
    RegressionSeries,
    Replay,
    Run,
    Suspicion,
    Sweep,
    Verdict,
)
from tilewatch.db.page_reads import series
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import Night, Point, ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.results import Compiled
from tilewatch.text import short_sha
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.judging import judge, rejudge
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, SeriesQuestion, series_of
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.lease import LeaseLost
from tilewatch.worker.queue.payloads import read_payload
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.queue.replay_job import ReplayJob, question_key
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compiler
from tilewatch.worker.submitting.submit import submit_nightly

STORY = (git_history.ADD, git_history.SPACE, git_history.CAST, git_history.WORDS, git_history.NAME)


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    """Settings for a repository that a test makes with `history.make`."""
    made = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)
    return made.model_copy(update={"sim_seed": git_history.SIM_SEED})


def do_one_job(context: Context) -> bool:
    """The next queued job; False when there was none."""
    with session(context.database_url) as opened:
        queued = jobs.list_unsent(opened, 0)
    if queued:
        run_job.run(queued[0].id, "tester#1", context)
    return bool(queued)


def leave_replays(watched: Settings, sha: str, night: int) -> list[int]:
    """A night that is measured and judged once: the ids of the replays that wait for a GPU."""
    submit_night(watched, sha, night)
    return do_all_but_replays(Context.of(watched))


def do_all_but_replays(context: Context) -> list[int]:
    while True:
        with session(context.database_url) as opened:
            queued = opened.execute(select(Job.id, Job.kind).where(Job.state == "queued").order_by(Job.id)).all()
        others = [job.id for job in queued if job.kind != "confirm"]
        if not others:
            return [job.id for job in queued]
        run_job.run(others[0], "tester#1", context)


def replays(context: Context) -> list[Replay]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Replay).order_by(Replay.id)))


def test_real_changes_are_confirmed_with_their_cause_and_changes_of_words_raise_nothing(
    watched: Settings, tmp_path: Path
) -> None:
    """The whole road with real workers: each of five commits is a night, and each is told for what it is."""
    shas = git_history.make(tmp_path / "watched", *STORY)
    context = Context.of(watched)
    with contextlib.ExitStack() as workers:
        for queues, name in (("compile,judge", "cpu@test"), ("gpu.sim", "gpu0@test")):
            workers.enter_context(celery_worker(watched, queues=queues, name=name))
        for night, sha in enumerate(shas.values()):
            submit_night(watched, sha, night)
            wait_for(lambda: all_done(context), watched.home / "cpu@test.log")
    verdicts = read_verdicts(context)
    for subject in STORY[:3]:
        assert {verdict for verdict, _ in verdicts[subject]} <= {"regression", "improvement"}, verdicts[subject]
        assert all("replays of old and new code differ by" in reason for _, reason in verdicts[subject])
    for subject in STORY[3:]:
        assert [verdict for verdict, _ in verdicts[subject]] == ["unchanged"] * len(tiny_repository.PROBLEMS)
        assert all(reason.startswith("same code as") for _, reason in verdicts[subject])
    with session(context.database_url) as opened:
        raised = opened.execute(
            select(Commit.subject, Regression, func.count(RegressionSeries.id))
            .join(Commit, Commit.id == Regression.bad_commit_id)
            .join(RegressionSeries, RegressionSeries.regression_id == Regression.id)
            .group_by(Commit.subject, Regression)
            .order_by(Regression.id)
        ).all()
        states = set(opened.scalars(select(Suspicion.state)))
        gpu_kinds = dict(
            opened.execute(select(Job.queue, func.count()).where(Job.kind == "confirm").group_by(Job.queue)).all()
        )
    assert [(subject, series) for subject, _, series in raised] == [(subject, 2) for subject in STORY[:3]]
    by_subject = {subject: regression for subject, regression, _ in raised}
    assert by_subject[git_history.SPACE].category == "search_space"
    assert "width lost 128, 256" in " ".join(by_subject[git_history.SPACE].explanation)
    assert "10 -> 9 registers a thread" in by_subject[git_history.CAST].cause
    assert (states, set(gpu_kinds)) == ({"confirmed"}, {"gpu.sim"})


def test_an_unexpected_error_costs_one_series_its_verdict_and_not_the_others_of_the_night(
    watched: Settings, tmp_path: Path
) -> None:
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched, shas[git_history.BASE])
    with session(context.database_url) as opened:
        first = opened.scalars(select(Run).order_by(Run.id)).first()
        assert first is not None
        first.telemetry = [{"sm_clock_mhz": "fast"}]
        problem = opened.get_one(Sweep, first.sweep_id).problem
    submit_night(watched, shas[git_history.ADD], 1)
    do_all_jobs(context)
    with session(context.database_url) as opened:
        night = opened.execute(
            select(Sweep.problem, Verdict.verdict, Verdict.reason)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Verdict, Verdict.run_id == Run.id)
            .where(Run.id > len(tiny_repository.PROBLEMS))
        ).all()
        regressed = set(opened.scalars(select(RegressionSeries.problem)))
        states = set(opened.scalars(select(Suspicion.state)))
        failures = set(opened.scalars(select(Job.failure)))
    reasons = {each: (verdict, reason) for each, verdict, reason in night}
    assert reasons.pop(problem) == (
        "undecided",
        "could not be judged: ValueError: could not convert string to float: 'fast'",
    )
    assert {verdict for verdict, _ in reasons.values()} == {"improvement"}
    assert regressed == set(reasons)
    assert (states, failures) == ({"confirmed", "undecided"}, {None})


def test_a_range_of_untested_commits_is_narrowed_to_the_one(watched: Settings, tmp_path: Path) -> None:
    """Nobody tested the comment, the name and the cast; all three are compiled here, two of them are known code."""
    shas = git_history.make(
        tmp_path / "watched", git_history.ADD, git_history.WORDS, git_history.CAST, git_history.NAME
    )
    context = do_nights(watched, shas[git_history.ADD], shas[git_history.NAME])
    with session(context.database_url) as opened:
        (regression,) = opened.scalars(select(Regression))
        subjects = {commit.id: commit.subject for commit in opened.scalars(select(Commit))}
        urgent = set(opened.scalars(select(Job.priority).where(Job.key.startswith("prepare:"))))
    assert subjects[regression.bad_commit_id] == git_history.CAST
    assert subjects[regression.good_commit_id] == git_history.WORDS
    assert urgent == {Priority.BISECT}
    held = [replay for replay in replays(context) if replay.good_us]
    assert {(subjects[each.good_commit_id], subjects[each.bad_commit_id]) for each in held} == {
        (git_history.ADD, git_history.NAME)
    }, "what has the code of a tested commit was not timed again"


@pytest.mark.parametrize(
    "failure",
    [
        None,
        ("timeout", "stopped after 120 s: the machine was too busy"),
        ("error", "the compiler process died: SIGKILL"),
    ],
    ids=("compiles", "busy", "dies"),
)
def test_a_cubin_that_the_store_lost_is_compiled_again_for_its_replay(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: tuple[str, str] | None
) -> None:
    """Also on a machine that fails at first: its failure was the answer of the replay."""
    tries, open_compiler = Counter[str](), compiler.open_compiler

    def open_flaky(context: Context, toolchain: str | None) -> Any:
        opened = open_compiler(context, toolchain)

        def compile_late(*asked: Any, **named: Any) -> Compiled:
            tries[str(asked)] += 1
            if failure is not None and tries[str(asked)] < compiler.TRIES:
                return opened._make_failure(*failure, "sm_90", 120.0)
            return opened.compile(*asked, **named)

        return SimpleNamespace(compile=compile_late, version=opened.version, limit_s=opened.limit_s)

    monkeypatch.setattr(compiler, "open_compiler", open_flaky)

    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    watched = watched.model_copy(update={"store_url": (watched.home / "cubins").as_uri()})
    context = do_nights(watched, shas[git_history.BASE])
    for file in list((watched.home / "cubins").rglob("*.*")):
        file.unlink()
    submit_night(watched, shas[git_history.ADD], 1)
    do_all_jobs(context)
    assert {verdict for verdict, _ in read_verdicts(context)[git_history.ADD]} <= {"regression", "improvement"}
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.state).where(Job.kind == "prepare")).all()
        compiled = {file.stem for file in (watched.home / "cubins").rglob("*.cubin")}
        assert {replay.good_content_key for replay in replays(context)} <= compiled


def test_eight_judges_of_one_night_say_and_raise_everything_once(watched: Settings, tmp_path: Path) -> None:
    """The night's replays are there and all else is forgotten; then eight judges start on it at once."""
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched, *shas.values())
    judge.forget()
    with session(context.database_url) as opened:
        opened.execute(delete(Regression))
        opened.execute(delete(Verdict))
        opened.execute(update(Suspicion).values(state="open", closed_at=None))
        runs = list(opened.scalars(select(Run.id)))
        for number in range(8):
            run_id = runs[-1 - number % len(tiny_repository.PROBLEMS)]
            jobs.add(opened, key=f"again:{number}", kind="judge", queue="judge", subject="s", payload={}, run_id=run_id)
        again = [job.id for job in jobs.list_unsent(opened, 0)]
    assert len(again) == 8
    judges = [threading.Thread(target=run_job.run, args=(job_id, f"judge#{job_id}", context)) for job_id in again]
    for each in judges:
        each.start()
    for each in judges:
        each.join()
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.failure).where(Job.failure.is_not(None))).all() == []
        assert len(opened.scalars(select(Regression.id)).all()) == 1
        assert len(opened.scalars(select(RegressionSeries.id)).all()) == len(tiny_repository.PROBLEMS)
        assert opened.scalars(select(RegressionEvent.action).order_by(RegressionEvent.id)).all() == ["open", "join"]
        assert len(opened.scalars(select(Verdict.run_id)).all()) == len(tiny_repository.PROBLEMS)


def test_a_judge_that_remembers_nothing_says_the_same(watched: Settings, tmp_path: Path) -> None:
    """What one worker process keeps in memory is made again from the database by another."""
    shas = git_history.make(tmp_path / "watched", *STORY[:3])
    context = Context.of(watched)
    for night, sha in enumerate(shas.values()):
        judge.forget()
        submit_night(watched, sha, night)
        while do_one_job(context):
            judge.forget()
    verdicts = read_verdicts(context)
    assert {verdict for subject in STORY[:3] for verdict, _ in verdicts[subject]} <= {"regression", "improvement"}
    with session(context.database_url) as opened:
        asked = opened.scalar(select(func.sum(func.cardinality(Replay.good_us))))
    assert asked == 3 * len(tiny_repository.PROBLEMS) * context.policy.least_launches


def test_a_question_that_cannot_be_answered_is_undecided_with_its_reason(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.measuring.replay import ReplayFailed

    def wrong(*_: object, **__: object) -> None:
        raise ReplayFailed("the base side cannot be replayed (wrong): the output is off by 1")

    monkeypatch.setattr(SimulatedGpu, "replay", wrong)
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched, *shas.values())
    assert [verdict for verdict, _ in read_verdicts(context)[git_history.ADD]] == ["undecided"] * len(
        tiny_repository.PROBLEMS
    )
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Suspicion.state))) == {"undecided"}
        reasons = opened.scalars(select(Suspicion.reason)).all()
        assert all(reason.startswith("no replay could be held") for reason in reasons)
        assert all("; the kernel's time moved -" in reason for reason in reasons), "what differs from the night before"
        assert opened.scalars(select(Regression.id)).all() == []
    assert {replay.failure for replay in replays(context)} == {
        "the base side cannot be replayed (wrong): the output is off by 1"
    }


@pytest.mark.parametrize(
    "end",
    [
        {"state": "cancelled"},
        {"state": "running", "owner": "gone#1", "attempt": MAX_ATTEMPTS, "lease_until": ENDED_LEASE},
        {"state": "failed", "failure": "the process crashed before it queued the judge"},
    ],
    ids=("cancelled", "poison", "failed"),
)
def test_a_night_whose_replays_ended_without_an_answer_is_judged_without_them(
    watched: Settings, tmp_path: Path, end: dict[str, Any]
) -> None:
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched, shas[git_history.BASE])
    waiting, rounds = leave_replays(watched, shas[git_history.ADD], 1), 0
    while waiting:  # by the noise of the night, the judge asks of its series at once or one after the other
        rounds += 1
        with session(context.database_url) as opened:
            opened.execute(update(Job).where(Job.id.in_(waiting)).values(finished_at=text("now()"), **end))
        reconcile(context.database_url, context.broker_url)
        waiting = do_all_but_replays(context)
    reconcile(context.database_url, context.broker_url)
    assert do_all_but_replays(context) == [], "there is nothing left to do"
    reasons = [reason for _, reason in read_verdicts(context)[git_history.ADD]]
    assert all(reason.startswith("no replay could be held: ") for reason in reasons), reasons
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Suspicion.state))) == {"undecided"}
        assert len(opened.scalars(select(Job.id).where(Job.key.contains("the rest after"))).all()) == rounds > 0


@pytest.mark.parametrize("late", [0, 1], ids=("new_series", "second_night"))
def test_a_run_that_comes_after_its_night_was_judged_is_judged_by_its_own_time(
    watched: Settings, tmp_path: Path, late: int
) -> None:
    shas = list(git_history.make(tmp_path / "watched", git_history.ADD).values())
    context = do_nights(watched, *shas[:late])
    submit_night(watched, shas[late], late)
    with session(context.database_url) as opened:
        (left, *_) = opened.scalars(select(Job.id).where(Job.kind == "measure", Job.state == "waiting"))
        jobs.cancel(opened, [left])
    do_all_jobs(context)
    with session(context.database_url) as opened:
        actions.retry(opened, JobSelection.of(left, None), "ada")
    do_all_jobs(context)
    (_, verdicts) = read_verdicts(context).popitem()
    expected = ({"undecided"}, {"improvement"})[late]
    assert [verdict for verdict, _ in verdicts] == [*expected] * len(tiny_repository.PROBLEMS)
    assert not any("could not be judged" in reason for _, reason in verdicts), verdicts


def move_replays(context: Context, not_before: TextClause | None) -> None:
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.kind == "confirm").values(not_before=not_before))


def wait_for_one_replay(watched: Settings, folder: Path) -> tuple[Context, int, ReplayJob]:
    """Two nights of one commit, and what the later one is to ask: the replay for which job of the first one waits."""
    shas = git_history.make(folder, git_history.ADD)
    context = do_nights(watched, shas[git_history.BASE])
    leave_replays(watched, shas[git_history.ADD], 1)
    move_replays(context, text("now() + interval '1 day'"))
    leave_replays(watched, shas[git_history.ADD], 2)
    with session(context.database_url) as opened:
        *_, run = opened.scalars(select(Run).order_by(Run.id))
        late = opened.get_one(Sweep, run.sweep_id)
        assert late.submission_id is not None
        first = opened.scalars(select(Job).where(Job.kind == "confirm").order_by(Job.id)).first()
        assert first is not None
        asked = replace(read_payload(ReplayJob, first.payload), run_id=run.id, submission_id=late.submission_id)
        return context, first.id, asked


def ask(context: Context, asked: ReplayJob) -> list[int]:
    with session(context.database_url) as opened:
        return [job.id for job in follow_up.ask(opened, asked, Priority.CONFIRM)]


def end(context: Context, job_id: int, state: str) -> None:
    with session(context.database_url) as opened:
        columns = {"state": state, "failure": "out of memory" if state == "failed" else None}
        opened.execute(update(Job).where(Job.id == job_id).values(**columns))


@pytest.mark.parametrize("state", ["queued", "done", "failed"])
def test_a_night_that_asks_after_another_has_a_job_of_its_own(watched: Settings, tmp_path: Path, state: str) -> None:
    """The replay may end after the later night read what is stored; then no end of a job would judge that night."""
    context, first, asked = wait_for_one_replay(watched, tmp_path / "watched")
    end(context, first, state)
    assert [len(ask(context, asked)) for _ in range(2)] == [1, 0], "each night asks once"


def test_a_night_gives_a_replay_up_by_the_end_of_its_own_job(watched: Settings, tmp_path: Path) -> None:
    context, first, asked = wait_for_one_replay(watched, tmp_path / "watched")
    (own,) = ask(context, asked)
    with session(context.database_url) as opened:
        of_first = opened.get_one(Job, first).submission_id or 0

    def read_given_up() -> list[bool]:
        with session(context.database_url) as opened:
            nights = (of_first, asked.submission_id)
            return [judging.was_given_up(opened, asked.question.key, night) for night in nights]

    end(context, own, "cancelled")
    assert read_given_up() == [False, True], "the first night's job goes on"
    end(context, first, "failed")
    assert read_given_up() == [True, True]
    end(context, own, "queued")
    assert read_given_up() == [True, False], "the later night's job goes on"


def test_two_nights_that_wait_for_one_replay_are_both_judged_after_it(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job of the replay was of the first night alone, so its end queued no judge for the second one."""
    context, _, asked = wait_for_one_replay(watched, tmp_path / "watched")
    ask(context, asked)
    question = asked.question
    with session(context.database_url) as opened:
        commits = {"good_commit_id": question.base.commit_id, "bad_commit_id": question.head.commit_id}
        about = {"kernel": question.kernel, "problem": question.problem, "gpu_model": question.gpu_model}
        suspicions.open_once(opened, run_id=asked.run_id, **about, **commits, size=0.1, reason="as if it asked")
    launched: list[str] = []
    replay = SimulatedGpu.replay

    def count_replay(gpu: SimulatedGpu, asked: ReplayJob, *given: Any, **named: Any) -> Any:
        launched.append(asked.question.key)
        return replay(gpu, asked, *given, **named)

    monkeypatch.setattr(SimulatedGpu, "replay", count_replay)
    move_replays(context, None)
    do_all_jobs(context)
    assert len(launched) == len(set(launched)), "one replay answers both"
    with session(context.database_url) as opened:
        again = select(Job.state).where(Job.key.contains(":the rest after"), Job.submission_id == asked.submission_id)
        assert set(opened.scalars(again)) == {"done"}, "the second night was judged"


def test_a_night_spends_no_more_replay_launches_than_it_may(watched: Settings, tmp_path: Path) -> None:
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched.model_copy(update={"replay_launches": 3}), *shas.values())
    verdicts = sorted(verdict for verdict, _ in read_verdicts(context)[git_history.ADD])
    assert verdicts in (["improvement", "undecided"], ["regression", "undecided"], ["undecided", "undecided"])
    # Three for the first suspicion, nothing for the second; what is believed is made sure beyond that.
    assert sum(len(replay.good_us) for replay in replays(context)) == context.policy.least_launches
    assert len({replay.problem for replay in replays(context)}) == 1


def test_another_policy_over_the_history_says_what_it_would_have_changed(watched: Settings, tmp_path: Path) -> None:
    """Judged as before nothing changes; a policy that believes nothing leaves every change undecided."""
    shas = git_history.make(tmp_path / "watched", *STORY[:2])
    context = do_nights(watched, *shas.values())
    verdicts = read_verdicts(context)
    before = {subject: [verdict for verdict, _ in found] for subject, found in verdicts.items()}
    today = dt.datetime.now(dt.UTC).date()
    same = rejudge.rejudge(context, context.policy, today - dt.timedelta(days=1))
    assert (same.runs, same.changed) == (3 * len(tiny_repository.PROBLEMS), ())
    doubtful = rejudge.rejudge(context, replace(context.policy, believed_deviations=1e6), today - dt.timedelta(days=1))
    assert {(each.was, each.would_be) for each in doubtful.changed} <= {
        ("regression", "undecided"),
        ("improvement", "undecided"),
    }
    assert len(doubtful.changed) == 2 * len(tiny_repository.PROBLEMS)
    assert {subject: [verdict for verdict, _ in found] for subject, found in read_verdicts(context).items()} == before


def test_another_compiler_is_told_from_a_commit(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit, measured before and after the compiler changed: its old and new cubins are timed together."""
    compiled_by = Compiler.compile

    def as_another_would(self: Compiler, *asked: Any, **named: Any) -> Compiled:
        outcome = compiled_by(self, *asked, **named)
        code = outcome.code_sha256
        return replace(outcome, code_sha256=f"{code} by another") if code and self.limit_s == 16.0 else outcome

    monkeypatch.setattr(Compiler, "compile", as_another_would)
    (sha,) = git_history.make(tmp_path / "watched").values()
    do_nights(watched, sha)
    compiler.close()
    changed = watched.model_copy(update={"compile_limit_s": 16.0})  # the limit is part of a compiler's name
    submit_night(changed, sha, 1)
    context = Context.of(changed)
    do_all_jobs(context)
    (first, *rest) = (each for each in replays(context) if each.axis == "toolchain")
    assert "limit 15s" in (first.good_toolchain or "")
    assert "limit 16s" in (first.bad_toolchain or "")
    assert all(each.good_commit_id == each.bad_commit_id for each in (first, *rest))
    with session(context.database_url) as opened:
        raised = opened.scalars(select(Regression)).all()
        verdicts = opened.scalars(
            select(Verdict).join(RegressionSeries, RegressionSeries.run_id == Verdict.run_id)
        ).all()
    assert {regression.category for regression in raised} == {"toolchain"}
    assert all(regression.cause.startswith("another compiler: ") for regression in raised)
    assert {verdict.verdict for verdict in verdicts} <= {"regression", "improvement"}
    assert all(verdict.reason.startswith("the commit before, compiled by both") for verdict in verdicts)


def test_a_commit_and_a_compiler_that_changed_in_one_night_are_told_apart(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both halves of the experiment: the commits compiled by one compiler, and the commit before compiled by both."""
    compiled_by = Compiler.compile

    def as_another_would(self: Compiler, *asked: Any, **named: Any) -> Compiled:
        outcome = compiled_by(self, *asked, **named)
        if outcome.code_sha256 is None or self.limit_s != 16.0:
            return outcome
        return replace(outcome, code_sha256=f"{outcome.code_sha256} by another")

    monkeypatch.setattr(Compiler, "compile", as_another_would)
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    do_nights(watched, shas[git_history.BASE])
    compiler.close()
    changed = watched.model_copy(update={"compile_limit_s": 16.0})
    submit_night(changed, shas[git_history.ADD], 1)
    context = Context.of(changed)
    do_all_jobs(context)
    held = [each for each in replays(context) if each.good_us]
    with session(context.database_url) as opened:
        ids = {commit.subject: commit.id for commit in opened.scalars(select(Commit))}
        raised = {each.category: each for each in opened.scalars(select(Regression))}
    for each in held:
        ends, compilers = (each.good_commit_id, each.bad_commit_id), (each.good_toolchain, each.bad_toolchain)
        if each.axis == "commit":
            assert ends == (ids[git_history.BASE], ids[git_history.ADD])
            assert compilers[0] == compilers[1]
        else:
            assert ends == (ids[git_history.BASE], ids[git_history.BASE])
            assert compilers[0] != compilers[1]
    assert {each.axis for each in held} == {"commit", "toolchain"}
    assert set(raised) == {"code", "toolchain"}
    assert any("compiled by both" in line for line in raised["code"].explanation)


def test_a_branch_opens_no_regression_and_is_not_of_the_main_line(watched: Settings, tmp_path: Path) -> None:
    """The branch has a real change, which on the main line is confirmed; main goes on without it."""
    folder = tmp_path / "watched"
    shas = git_history.make(folder, git_history.WORDS)
    tiny_repository.git(folder, "switch", "--quiet", "--create", "pr/more", shas[git_history.BASE])
    for number, factor in enumerate((3, 5)):
        branch = tiny_repository.commit(folder, f"Slower {number}", factor=factor)
    tiny_repository.git(folder, "switch", "--quiet", "main")
    context = do_nights(watched, shas[git_history.BASE], "pr/more~1", "pr/more", shas[git_history.WORDS])
    verdicts = read_verdicts(context)
    for number in (0, 1):
        assert [verdict for verdict, _ in verdicts[f"Slower {number}"]] == ["undecided"] * len(tiny_repository.PROBLEMS)
    assert all(
        reason.startswith(f"same code as {short_sha(shas[git_history.BASE])}")
        for _, reason in verdicts[git_history.WORDS]
    )
    with session(context.database_url) as opened:
        assert not opened.scalars(select(Regression)).all()
        assert not opened.scalars(select(Suspicion)).all()
        assert series.list_repositories(opened)[0] == "watched"
        assert "watched (branch pr/more)" in series.list_repositories(opened)
        drawn = series.list_points(opened, "watched", tiny_repository.KERNEL, tiny_repository.PROBLEMS[0], "sim")
    assert {point.sha for point in drawn} == {shas[git_history.BASE], shas[git_history.WORDS]}
    submit_night(watched, branch, 2)
    tiny_repository.git(folder, "switch", "--quiet", "pr/more")
    assert submit_nightly(watched, commit=branch, gpus=("sim",), night=FIRST_NIGHT).created, "merged, it is swept again"


NIGHTS = [Night(number, number, "a" * 40, 10 * number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("nights", "origin", "facts", "points", "continues"),
    [
        (NIGHTS, "measured", 0, 0, True),
        (NIGHTS[:2], "measured", 0, 0, True),
        (NIGHTS[:1], "measured", 0, 0, False),
        ([NIGHTS[0], replace(NIGHTS[1], submission_id=9), NIGHTS[2]], "measured", 0, 0, False),
        ([NIGHTS[0], replace(NIGHTS[1], position=19), NIGHTS[2]], "measured", 0, 0, False),
        (NIGHTS, "measured", 1, 0, True),
        (NIGHTS, "recorded", 0, 0, True),
        (NIGHTS, "recorded", 1, 0, False),
        (NIGHTS, "measured", 0, 1, False),
    ],
)
def test_a_judge_is_used_again_while_what_it_judged_is_what_is_stored(
    db_session: Session, nights: list[Night], origin: str, facts: int, points: int, continues: bool
) -> None:
    """Nothing is stored here of its two nights. Replays of recorded nights come with a later file only."""
    cached = ScopeJudge([("gemm", "1024", "n1")], Policy(), 100)
    for night in NIGHTS[:2]:
        cached.add_night(night.submission_id, night.position, [], {})
    cached.points = points
    tonight: Any = SimpleNamespace(session=db_session, scope=SimpleNamespace(origin=origin), facts=[None] * facts)
    assert judge._continues(cached, tonight, nights) == continues


def night_of(session: Session, run_id: int, planned: one_commit.Planned) -> OpenNight:
    scope = Scope(planned.submission_id, 1, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    store: Any = None
    return OpenNight(session, scope, History(session, None, scope, ()), (), run_id, Policy(name="strict"), store, "")


@pytest.mark.parametrize(
    ("is_settled", "is_measuring", "judged"), [(False, False, 1), (True, False, 0), (False, True, 0), (True, True, 0)]
)
def test_a_night_is_judged_by_one_process_at_once_when_it_is_measured_until_it_is_settled(
    context: Context, monkeypatch: pytest.MonkeyPatch, is_settled: bool, is_measuring: bool, judged: int
) -> None:
    with session(context.database_url) as opened:
        planned = one_commit.submit(opened)
        run_id = one_commit.measure(opened, planned)
        if not is_settled:
            opened.execute(delete(Verdict))
        if is_measuring:
            job_id = one_commit.job(opened)
            opened.execute(update(Job).where(Job.id == job_id).values(submission_id=planned.submission_id))
    held = text("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    seen: list[tuple[int, list[int], int]] = []

    def note(tonight: OpenNight, nights: list[Night], *_: object) -> list[object]:
        seen.append((tonight.run_id, [each.submission_id for each in nights], tonight.session.scalars(held).one()))
        return []

    monkeypatch.setattr(judge, "_judge", note)
    job: Any = SimpleNamespace(run_id=run_id)
    lease: Any = None
    assert judge.step(job, context, lease) == []
    assert seen == [(run_id, [planned.submission_id], 1)] * judged


def test_a_run_without_a_time_is_undecided(db_session: Session) -> None:
    """A run that has a time is judged by it."""
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    night = night_of(db_session, run_id, planned)
    point = Point(planned.submission_id, run_id, "gemm_fp8", "p", "n1", "toolchain", 9.0, 8.9, 9.1, None, None)
    judge._add_verdicts_without_time(night, {series_of(point): point})
    assert night.verdicts == []
    judge._add_verdicts_without_time(night, {})
    (verdict,) = night.verdicts
    assert (verdict.run_id, verdict.verdict, verdict.policy, verdict.history_points) == (
        run_id,
        "undecided",
        "strict",
        0,
    )
    assert verdict.reason == "no config gave a right answer, so no time"


def test_a_series_that_cannot_be_judged_is_undecided_with_the_error_and_awaits_nothing(
    db_session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    night = night_of(db_session, run_id, planned)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    point = Point(planned.submission_id, run_id, "gemm_fp8", "p", "n1", "toolchain", 9.0, 8.9, 9.1, None, None)
    night.open_suspicion(point, (commit_id, commit_id), 0.05, "+5.0%")
    reason = judge.give_up(night, series_of(point), point, ZeroDivisionError("no launches"))
    assert reason == "could not be judged: ZeroDivisionError: no launches"
    assert [(each.run_id, each.verdict, each.reason) for each in night.verdicts] == [(run_id, "undecided", reason)]
    assert db_session.scalars(select(Suspicion.state)).all() == ["undecided"]
    assert "gemm_fp8 p n1 could not be judged" in caplog.text


def test_an_error_takes_back_what_was_stored_of_its_series_and_no_other(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = one_commit.submit(db_session)
    night = night_of(db_session, one_commit.measure(db_session, planned), planned)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    scope_judge = ScopeJudge([("gemm_fp8", "p", "n1")], Policy(), 100)
    numbers = scope_judge.verdict(("gemm_fp8", "p", "n1"))

    def settle(tonight: OpenNight, _: object, __: object, point: Point, ___: object) -> None:
        tonight.add_verdict(point, numbers, "unchanged", "as before")
        if point.problem == "odd":
            tonight.open_suspicion(point, (commit_id, commit_id), 0.05, "+5.0%")
            raise ZeroDivisionError("no launches")

    monkeypatch.setattr(judge, "_settle", settle)
    for problem in ("first", "odd", "last"):
        point = Point(planned.submission_id, night.run_id, "gemm_fp8", problem, "n1", "t", 9.0, 8.9, 9.1, None, None)
        judge._try_to_settle(night, scope_judge, series_of(point), point, None)
    assert [(each.verdict, each.reason) for each in night.verdicts] == [
        ("unchanged", "as before"),
        ("undecided", "could not be judged: ZeroDivisionError: no launches"),
        ("unchanged", "as before"),
    ]
    assert db_session.scalars(select(Suspicion)).all() == []


@pytest.mark.parametrize(
    ("step", "failing", "error"),
    [
        ("series", "_settle", OperationalError("select 1", {}, Exception("the server closed the connection"))),
        ("night", "_up_to_tonight", OperationalError("select 1", {}, Exception("the server closed the connection"))),
        ("history", None, LeaseLost()),
    ],
    ids=("series", "night", "history"),
)
def test_a_night_is_judged_later_if_postgres_is_away_or_its_lease_was_lost(
    db_session: Session, monkeypatch: pytest.MonkeyPatch, step: str, failing: str | None, error: Exception
) -> None:
    """None of its series counts as one that could not be judged."""

    def fail(*_: object) -> None:
        raise error

    planned = one_commit.submit(db_session)
    night = night_of(db_session, one_commit.measure(db_session, planned), planned)
    point = Point(planned.submission_id, night.run_id, "gemm_fp8", "p", "n1", "t", 9.0, 8.9, 9.1, None, None)
    series, lease = series_of(point), SimpleNamespace(progress=fail)
    context = SimpleNamespace(database_url="", replay_launches=100)
    steps: dict[str, Any] = {
        "series": (judge._try_to_settle, night, ScopeJudge([series], Policy(), 100), series, point, None),
        "night": (judge._judge, night, NIGHTS, context, lease),
        "history": (judge._up_to_tonight, None, night, NIGHTS, 100, lease),
    }
    act, *given = steps[step]
    if failing is not None:
        monkeypatch.setattr(judge, failing, fail)
    with pytest.raises(type(error)):
        act(*given)
    assert night.verdicts == []


@pytest.mark.parametrize(
    ("stored", "used", "origin", "state", "answered"),
    [
        (4, 0, "measured", None, 4),
        (3, 0, "measured", None, None),
        (3, 0, "measured", "queued", None),
        (3, 0, "measured", "cancelled", 3),
        (0, 0, "measured", "cancelled", 0),
        (3, 2, "measured", "queued", None),
        (3, 2, "measured", "cancelled", 1),
        (6, 2, "measured", None, 4),
        (3, 0, "recorded", None, 3),
    ],
)
def test_a_replay_is_awaited_until_its_job_ended_without_an_answer(
    db_session: Session, stored: int, used: int, origin: str, state: str | None, answered: int | None
) -> None:
    """Launches that an earlier question used are on top. Recorded nights have no launches but those on record."""
    won = Winner(1, 1, "source", 1, {"tile_m": 32}, "key", "k", "code", "c1")
    ends = [End(number, f"{number}" * 40, won, None, f"code {number}") for number in (1, 2)]
    pair = Pair("k", "p", ends[0], ends[1], False)
    times = (100.0,) * stored
    facts = [ReplayFact("k", "p", 1, 2, 1, 2, "code 1", "code 2", times, times, None)]
    planned = one_commit.submit(db_session)
    scope = Scope(planned.submission_id, 1, "ab" * 20, 7, "tilewatch", "b200", "sm_100", origin)
    history = SimpleNamespace(find_pair=lambda *_: pair)
    tonight: Any = SimpleNamespace(session=db_session, scope=scope, history=history, facts=facts)
    if state is not None:
        key = question_key(scope, "k", "p", f"{ends[0].sha}:{ends[1].sha}", stored, used + 4 - stored)
        job_id = one_commit.job(db_session, judging.job_keys(key)[1], "queued", kind="confirm")
        db_session.execute(update(Job).where(Job.id == job_id).values(state=state, submission_id=scope.submission_id))
    found = judge._answer(tonight, SeriesQuestion(("k", "p", "n1"), 1, 2, 4, used))
    assert found == (None if answered is None else Launches((100.0,) * answered, (100.0,) * answered))


@pytest.mark.parametrize(
    ("origin", "clone", "missing", "queued"),
    [
        ("measured", Path("clone"), (), ["shipped"]),
        ("measured", None, (), []),
        ("simulated", Path("clone"), (), []),
        ("recorded", Path("clone"), (), []),
        ("measured", Path("clone"), ("a replay",), ["asked"]),
    ],
)
def test_shipped_configs_are_replayed_once_a_night_that_a_gpu_measured_is_settled(
    db_session: Session,
    monkeypatch: pytest.MonkeyPatch,
    origin: str,
    clone: Path | None,
    missing: tuple[str, ...],
    queued: list[str],
) -> None:
    """A repository without a clone has no tuned table."""
    planned = one_commit.submit(db_session)
    measured = night_of(db_session, one_commit.measure(db_session, planned), planned)
    night = replace(measured, scope=replace(measured.scope, origin=origin))
    judged = SimpleNamespace(settle=lambda _: missing)
    monkeypatch.setattr(judge, "_judges", {})
    monkeypatch.setattr(judge, "_up_to_tonight", lambda *_: judged)
    monkeypatch.setattr(judge, "_try_to_settle", lambda *_: None)
    monkeypatch.setattr(judge, "ask_about_shipped", lambda *_: ["shipped"])
    monkeypatch.setattr("tilewatch.worker.judging.other_causes.find", lambda *_: {})
    monkeypatch.setattr("tilewatch.worker.judging.questions.ask", lambda *_: ["asked"])
    monkeypatch.setattr("tilewatch.worker.git.watched.find_history", lambda *_: clone)
    context: Any = SimpleNamespace(database_url="", replay_launches=100)
    lease: Any = None
    assert judge._judge(night, NIGHTS, context, lease) == queued
    assert list(judge._judges.values()) == [judged]
