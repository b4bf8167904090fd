"""A person asks for the replay of an undecided run: it decides the verdict as the judge's own replay does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.git_history import ADD, BASE
from tests.worker.fixtures.nights import do_nights, read_verdicts
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle.actions import RequestedAction
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import (
    TOTAL,
    Action,
    Commit,
    Job,
    Regression,
    RegressionSeries,
    Replay,
    Run,
    Suspicion,
    Sweep,
    Verdict,
    Worker,
)
from tilewatch.db.session import session
from tilewatch.db.worker_reads.judging import Point, Scope
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.judging import requested_replay
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import FirstQuestion
from tilewatch.worker.queue import follow_up
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests

TICKS = 3


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    made = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)
    return made.model_copy(update={"sim_seed": git_history.SIM_SEED})


@pytest.fixture
def undecided(watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Two nights whose replays failed. All runs of the second are undecided, and so is their weighted total. A GPU is
    there again."""
    weighted = "baselines=(), weights=lambda problem: {'decode': 2.0},"
    monkeypatch.setattr(tiny_repository, "SOURCE", tiny_repository.SOURCE.replace("baselines=(),", weighted))
    shas = git_history.make(tmp_path / "watched", ADD)
    with monkeypatch.context() as gone:
        gone.setattr(SimulatedGpu, "replay", fail)
        context = do_nights(watched, shas[BASE], shas[ADD])
    with session(context.database_url) as opened:
        opened.add(Worker(name="gpu", kind="gpu", host="here", gpu_model="sim", gpu_uuid="GPU-1", toolchain={}))
    return context


def fail(*_: object, **__: object) -> None:
    raise ReplayFailed("the GPU fell off the bus")


def ask(context: Context) -> list[int]:
    """Asks for the replay of each run of the newest night; the ids of these runs."""
    with session(context.database_url) as opened:
        parts = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(Sweep.kernel != TOTAL).order_by(Run.id)
        run_ids = list(opened.scalars(parts))[-len(tiny_repository.PROBLEMS) :]
        for run_id in run_ids:
            actions.replay(opened, run_id, "ada")
    return run_ids


def carry_out(settings: Settings, context: Context) -> None:
    for _ in range(TICKS):
        submit_requests.carry_out(settings)
        with session(context.database_url) as opened:
            assert set(opened.scalars(select(Job.priority).where(Job.state == "queued"))) <= {Priority.BISECT}
        do_all_jobs(context)


def test_a_requested_replay_decides_and_opens_the_regression_as_the_judge_would(
    watched: Settings, undecided: Context
) -> None:
    run_ids = ask(undecided)
    asked = [reason.endswith(AWAITS_REPLAY) for _, reason in read_verdicts(undecided)[ADD]]
    assert sum(asked) == len(run_ids) == len(asked) - 1, "all but the total"
    carry_out(watched, undecided)
    assert {verdict for verdict, _ in read_verdicts(undecided)[ADD]} == {"improvement"}, "and the total's"
    assert {verdict for verdict, _ in read_verdicts(undecided)[BASE]} == {"undecided"}, "nobody asked about these"
    with session(undecided.database_url) as opened:
        subjects = {commit.id: commit.subject for commit in opened.scalars(select(Commit))}
        (found,) = opened.scalars(select(Regression))
        assert (subjects[found.good_commit_id], subjects[found.bad_commit_id]) == (BASE, ADD)
        assert set(opened.scalars(select(RegressionSeries.run_id))) == set(run_ids)
        replays = [replay for replay in opened.scalars(select(Replay)) if replay.good_us]
        assert [len(replay.good_us) for replay in replays] == [requested_replay.LAUNCHES] * len(run_ids)
        suspicions = {each.id: each for each in opened.scalars(select(Suspicion))}
        assert {suspicions[replay.suspicion_id or 0].run_id for replay in replays} == set(run_ids)
        for each in suspicions.values():
            assert (each.state, each.launches) == ("confirmed", requested_replay.LAUNCHES)
        for action in opened.scalars(select(Action)):
            verdict = opened.get_one(Verdict, int(action.wanted["run"]))
            assert (action.who, action.state, action.outcome) == ("ada", "done", verdict.reason)
            assert verdict.low is not None
            assert verdict.high is not None
            assert verdict.change is not None
            assert verdict.low < verdict.change < verdict.high < 0


def test_a_replay_that_ends_during_a_step_decides_at_the_next_one(
    watched: Settings, undecided: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step had read the stored replays before; it closed the request as if the replay had no launches."""
    ask(undecided)
    submit_requests.carry_out(watched)
    open_night = requested_replay.open_night

    def answer_meanwhile(*given: Any) -> OpenNight:
        night = open_night(*given)
        do_all_jobs(undecided)
        return night

    with monkeypatch.context() as slow:
        slow.setattr(requested_replay, "open_night", answer_meanwhile)
        submit_requests.carry_out(watched)
    carry_out(watched, undecided)
    assert {verdict for verdict, _ in read_verdicts(undecided)[ADD]} == {"improvement"}


def test_a_replay_that_fails_again_leaves_the_night_s_reason_once(
    watched: Settings, undecided: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_verdicts(undecided)[ADD]
    monkeypatch.setattr(SimulatedGpu, "replay", fail)
    ask(undecided)
    carry_out(watched, undecided)
    assert read_verdicts(undecided)[ADD] == before
    with session(undecided.database_url) as opened:
        assert set(opened.scalars(select(Action.state))) == {"done"}
        assert not opened.scalars(select(Regression)).all()


def test_identical_code_needs_no_gpu(watched: Settings, undecided: Context) -> None:
    run_ids = ask(undecided)
    with session(undecided.database_url) as opened:
        opened.execute(update(Sweep).values(source_sha256="ab" * 32))
    submit_requests.carry_out(watched)
    with session(undecided.database_url) as opened:
        assert not opened.scalars(select(Job).where(Job.state == "queued")).all()
        verdicts = [opened.get_one(Verdict, run_id) for run_id in run_ids]
    assert {each.verdict for each in verdicts} == {"unchanged"}
    assert all(each.reason.startswith("identical machine code") for each in verdicts)


def test_an_error_ends_the_request_and_stands_in_the_verdict(
    watched: Settings, undecided: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(follow_up, "ask", break_down)
    ask(undecided)
    submit_requests.carry_out(watched)
    said = {"could not be judged: ZeroDivisionError: by zero"}
    assert said <= {reason for _, reason in read_verdicts(undecided)[ADD]}
    with session(undecided.database_url) as opened:
        assert set(opened.scalars(select(Action.outcome))) == said


@pytest.mark.parametrize(
    ("launches", "ratio", "size"),
    [(8, 1.05, 0.05), (8, 0.95, -0.05), (7, 1.05, None), (8, 1.0031, 0.0031), (8, 1.0029, None), (8, 1.0, None)],
)
def test_a_request_finds_a_change_that_matters_in_as_many_launches_as_a_report_needs(
    launches: int, ratio: float, size: float | None
) -> None:
    night: Any = SimpleNamespace(policy=Policy())
    found = requested_replay._find_change(night, FirstQuestion(6, 7, [(100.0, 100.0 * ratio)] * launches))
    assert (None if found is None else found.size) == (None if size is None else pytest.approx(size))
    assert found is None or (found.first_bad, found.last_good) == (7, None)


@pytest.mark.parametrize(
    "reason",
    [
        "+5.0% against 0.4% noise",
        f"+5.0% against 0.4% noise{AWAITS_REPLAY}",
        "no replay could be held: +5.0% against 0.4% noise",
        "not reproduced: 8 replay launches differ by nothing; the night alone: +5.0% against 0.4% noise",
        "not sure enough: it differs; the night alone: no replay could be held: +5.0% against 0.4% noise",
    ],
)
def test_a_second_request_begins_with_the_reason_of_the_night(db_session: Session, reason: str) -> None:
    """Else the reasons of all requests would stand in a row."""
    run_id = one_commit.measure(db_session, one_commit.submit(db_session))
    verdict = db_session.get_one(Verdict, run_id)
    verdict.reason = reason
    numbers = requested_replay._read_numbers(db_session, run_id)
    assert numbers.reason == "+5.0% against 0.4% noise"
    assert (numbers.verdict, numbers.change, numbers.policy) == (verdict.verdict, verdict.change, verdict.policy)


@pytest.mark.parametrize(("ratio", "launches", "state"), [(1.0, 32, "refuted"), (1.01, 3, "undecided")])
def test_a_run_that_nothing_was_suspected_of_has_a_suspicion_once_its_replay_is_requested(
    db_session: Session, ratio: float, launches: int, state: str
) -> None:
    """Such a run is undecided by its night alone. Pages show its launches with its suspicion."""
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    scope = Scope(planned.submission_id, commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    store: Any = None
    night = OpenNight(db_session, scope, History(db_session, None, scope, ()), (), run_id, Policy(), store, "")
    point = Point(planned.submission_id, run_id, "gemm_fp8", "p", "n1", "toolchain", 9.0, 8.9, 9.1, None, None)
    ends = [End(commit_id, f"{number}" * 40, None, None, None) for number in (1, 2)]
    times = [(100.0 + wobble % 2, (100.0 + wobble % 2) * ratio) for wobble in range(launches)]
    pair = Pair("gemm_fp8", "p", ends[0], ends[1], ratio == 1.0)
    reason = requested_replay._conclude(night, point, pair, FirstQuestion(6, 7, times))
    (suspected,) = db_session.scalars(select(Suspicion))
    assert (suspected.run_id, suspected.state, suspected.reason) == (run_id, state, reason)
    assert (suspected.good_commit_id, suspected.bad_commit_id) == (commit_id, commit_id)
    assert [(each.run_id, each.reason) for each in night.verdicts] == [(run_id, reason)]


def test_a_requested_replay_takes_its_step_later_if_postgres_is_away(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    scope = Scope(planned.submission_id, 1, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    store: Any = None
    night = OpenNight(db_session, scope, History(db_session, None, scope, ()), (), run_id, Policy(), store, "")

    def lose_postgres(*_: object, **__: object) -> None:
        raise OperationalError("select 1", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(requested_replay, "open_night", lambda *_: night)
    monkeypatch.setattr(requested_replay, "_take_step", lose_postgres)
    context: Any = None
    with pytest.raises(OperationalError):
        requested_replay.carry_on(
            db_session, context, RequestedAction(1, "ada", "bisect", {"run": run_id}, one_commit.NOON)
        )
    assert night.verdicts == []
