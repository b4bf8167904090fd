"""A confirmed change becomes a regression or an improvement, with its commits, and people are notified of it."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import open_regression as made
from tilewatch.compilers import CompilerChange
from tilewatch.db.lifecycle import regressions
from tilewatch.db.models import Action, Message, Regression, RegressionEvent, RegressionSeries, Run
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import ExpectedLevel, NightBefore, Point, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging import open_regression
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion
from tilewatch.worker.judging.node_comparison import NodeAnswer, NodeSuspicion
from tilewatch.worker.notify.outbox import Outbox, write_and_send
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
SIDE = BuildSide(1, "a" * 40, 1, {"tile_m": 64}, True, None)
COMPILERS = tuple(f"cuda-tile 1.7.0 cuda-tileiras {version} limit 15s" for version in ("13.4.92", "13.5.37"))
QUESTION = BuildQuestion("key", made.KERNEL, made.PROBLEM, "b200", "sm_100", "measured", "node", 0, 8, SIDE, SIDE)


@dataclass(frozen=True)
class Night:
    """A judged night of two commits, by their ids, and one run."""

    good: int
    bad: int
    scope: Scope
    point: Point
    before: NightBefore


def judged_night(opened: Session) -> Night:
    good = made.commit(opened, 100, "a" * 40, "Fine")
    bad = made.commit(opened, 101, "b" * 40, "Turn the swizzle off")
    planned = one_commit.submit(opened)
    run_id, night = one_commit.measure(opened, planned), planned.submission_id
    point = Point(night, run_id, made.KERNEL, made.PROBLEM, "n2", "t", 9.05, 9.0, 9.1, None, None)
    scope = Scope(night, bad, "b" * 40, 101, "tilewatch", "b200", "sm_100", "measured")
    return Night(good, bad, scope, point, NightBefore(run_id, good, "a" * 40, 9.0))


def at_later_run(opened: Session, point: Point, key: str = "later") -> Point:
    """The same series, measured once more."""
    return replace(point, run_id=one_commit.measure(opened, one_commit.submit(opened, key=key), key=f"run {key}"))


def confirm(opened: Session, night: Night, size: float) -> str:
    return open_regression.open_for_commit(
        opened,
        night.scope,
        store=CubinStore("memory://no-cubins"),
        point=night.point,
        good_run_id=None,
        suspicion_id=None,
        alert=ConfirmedChange(0, 101, size, 0.001),
        span=(night.good, night.bad),
    )


@pytest.mark.parametrize(("size", "direction", "sent"), [(0.05, "regression", 1), (-0.05, "improvement", 0)])
def test_a_slower_commit_is_a_regression_that_people_are_notified_of(
    database_url: str, size: float, direction: str, sent: int
) -> None:
    with session(database_url) as opened:
        night = judged_night(opened)
        reason = confirm(opened, night, size)
    assert f"differ by {size:+.1%}" in reason
    outbox = Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")
    assert write_and_send(outbox, NOW) == sent
    with session(database_url) as opened:
        stored = opened.scalars(select(Regression)).one()
        assert (stored.direction, stored.size) == (direction, size)
        assert (stored.good_commit_id, stored.bad_commit_id) == (night.good, night.bad)
        assert (stored.low, stored.high) == (pytest.approx(size - 0.00196), pytest.approx(size + 0.00196))
        assert [message.kind for message in opened.scalars(select(Message))] == ["opened"] * sent


def test_a_commit_that_takes_a_regression_back_opens_no_improvement(db_session: Session) -> None:
    night = judged_night(db_session)
    confirm(db_session, night, 0.05)
    recovered = replace(night, point=at_later_run(db_session, night.point))
    assert "it takes back regression" in confirm(db_session, recovered, -0.048)
    assert db_session.scalars(select(Regression.direction)).all() == ["regression"]


def change_compiler(opened: Session, night: Night, size: float, compilers: Sequence[str]) -> CompilerSuspicion:
    suspicion = CompilerSuspicion(night.point, night.before, size, CompilerChange(*compilers), QUESTION)
    change = Estimate(math.log1p(size), 0.001, 8)
    open_regression.open_for_compiler(opened, night.scope, suspicion, change, "by both compilers", None)
    return suspicion


def test_a_compiler_that_is_taken_back_ends_its_regression_and_opens_no_improvement(db_session: Session) -> None:
    night = judged_night(db_session)
    change_compiler(db_session, night, 0.05, COMPILERS)
    later = replace(night, point=at_later_run(db_session, night.point))
    change_compiler(db_session, later, -0.048, COMPILERS[::-1])
    db_session.expire_all()
    found = db_session.execute(select(Regression.direction, Regression.state)).all()
    assert [tuple(each) for each in found] == [("regression", "resolved")]


def test_a_compiler_that_is_installed_again_opens_its_regression_again(db_session: Session) -> None:
    """All nights are at one commit, as nobody pushed."""
    night = judged_night(db_session)
    night = replace(night, before=replace(night.before, commit_id=night.bad))
    for size, compilers in ((0.05, COMPILERS), (-0.048, COMPILERS[::-1]), (0.06, COMPILERS), (0.06, COMPILERS)):
        change_compiler(db_session, night, size, compilers)
        night = replace(night, point=at_later_run(db_session, night.point, f"after {size}"))
    db_session.expire_all()
    stored = db_session.scalars(select(Regression)).one()
    assert (stored.state, stored.size) == ("reopened", pytest.approx(0.06))
    assert db_session.scalars(select(RegressionSeries.recovered_at)).all() == [None]
    actions = select(RegressionEvent.action).order_by(RegressionEvent.id)
    assert db_session.scalars(actions).all() == ["open", "recover", "resolve", "join", "reopen"]


@pytest.mark.parametrize(("size", "direction"), [(0.05, "regression"), (-0.05, "improvement")])
def test_a_slower_compiler_is_a_regression_of_the_toolchain(db_session: Session, size: float, direction: str) -> None:
    night = judged_night(db_session)
    suspicion = change_compiler(db_session, night, size, COMPILERS)
    change_compiler(db_session, night, size, COMPILERS)
    asked = db_session.scalars(select(Action)).one()
    assert (asked.action, asked.state, asked.who) == ("toolchains", "asked", "tilewatch")
    assert asked.wanted == {
        **{"toolchains": ["cuda-tileiras-13.4.92", "installed"]},
        **{"repository": "tilewatch", "commit": "b" * 40, "gpus": ["b200"]},
    }
    stored = db_session.scalars(select(Regression)).one()
    assert (stored.direction, stored.category) == (direction, "toolchain")
    assert CompilerChange.read(stored.cause) == suspicion.compilers, "its page links the report on both"
    assert stored.size == pytest.approx(size)
    assert (stored.good_commit_id, stored.bad_commit_id) == (night.good, night.bad)


def node_suspicion(night: Night, driver: str | None = None, apart: float = 0.0) -> NodeSuspicion:
    there, here = (NodeGpu(host, f"GPU-{host}", "580.1") for host in ("n1", "n2"))
    return NodeSuspicion(night.point, night.before, there, here, 0.05, True, driver, apart, (QUESTION, QUESTION))


def test_a_slow_node_and_its_recovery_are_stored_in_per_cent_of_the_time(db_session: Session) -> None:
    night = judged_night(db_session)
    answer = NodeAnswer(Estimate(math.log(1.05), 0.001, 8), None)
    open_regression.open_for_node(db_session, night.scope, node_suspicion(night), answer, "n2 is slow", None)
    stored = db_session.scalars(select(Regression)).one()
    assert (stored.direction, stored.category, stored.state) == ("regression", "node", "new")
    assert stored.size == pytest.approx(0.05)
    mended = replace(node_suspicion(night), point=at_later_run(db_session, night.point), reported_size=0.05)
    open_regression.close_for_node(db_session, night.scope, mended, Estimate(0.001, 0.001, 8), None)
    db_session.expire_all()
    assert db_session.scalars(select(Regression.state)).one() == "resolved"
    assert db_session.scalars(select(RegressionSeries.recovered_at)).one() is not None


def test_a_new_driver_is_charged_with_what_it_added_and_not_with_what_the_node_lacked_before(
    db_session: Session,
) -> None:
    night = judged_night(db_session)
    suspicion = node_suspicion(night, "580.1 -> 590.2", apart=0.01)
    answer = NodeAnswer(Estimate(0.05, 0.001, 8), None)
    open_regression.open_for_node(db_session, night.scope, suspicion, answer, "the driver is slow", None)
    stored = db_session.scalars(select(Regression)).one()
    assert (stored.category, stored.size) == ("toolchain", pytest.approx(math.expm1(0.04)))


def test_a_regression_that_people_expect_is_the_level_of_its_series_for_as_long_as_they_do(db_session: Session) -> None:
    night = judged_night(db_session)
    confirm(db_session, night, 0.05)
    assert judging.list_expected_levels(db_session, night.scope) == []
    number = db_session.scalars(select(Regression.id)).one()
    regressions.triage(db_session, number, "expect", "ada")
    (level,) = judging.list_expected_levels(db_session, night.scope)
    assert level == ExpectedLevel(made.KERNEL, made.PROBLEM, None, 101)
    for other in ({"repository": "other"}, {"gpu_model": "h200"}, {"origin": "recorded"}):
        assert judging.list_expected_levels(db_session, replace(night.scope, **other)) == []
    regressions.triage(db_session, number, "reopen", "ada")
    assert judging.list_expected_levels(db_session, night.scope) == []


def test_the_level_of_a_slow_node_that_people_expect_is_that_node_s(db_session: Session) -> None:
    night = judged_night(db_session)
    answer = NodeAnswer(Estimate(math.log(1.05), 0.001, 8), None)
    open_regression.open_for_node(db_session, night.scope, node_suspicion(night), answer, "n2 is slow", None)
    regressions.triage(db_session, db_session.scalars(select(Regression.id)).one(), "expect", "ada")
    (level,) = judging.list_expected_levels(db_session, night.scope)
    assert level.host == db_session.scalars(select(Run.host)).first()
