"""Node against node: one cubin on two GPUs tells a slow node, and a slow driver, from slow code."""

import contextlib
import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import delete, select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.celery_process import all_done, celery_worker, wait_for, workers
from tests.worker.fixtures.nights import submit_night
from tests.worker.fixtures.worker_context import settings_for
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs, suspicions
from tilewatch.db.models import Job, Regression, RegressionSeries, Replay, Run, Suspicion, Sweep, Verdict, Worker
from tilewatch.db.page_reads import messages, regressions, replays
from tilewatch.db.session import session
from tilewatch.db.worker_reads import gpus, judging
from tilewatch.db.worker_reads.judging import NightBefore, Point, ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import node_cause, node_comparison
from tilewatch.worker.judging.node_comparison import NodeSuspicion, compare
from tilewatch.worker.notify import wording
from tilewatch.worker.process.heartbeat import Heartbeat
from tilewatch.worker.process.identity import identify
from tilewatch.worker.queue.dispatch import OF_ONE_GPU
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide
from tilewatch.worker.settings import Settings

SLOW = 0.05
LAUNCHES = node_cause.LAUNCHES


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    return settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)


def node(settings: Settings, name: str, slow: float = 0.0, driver: str = "580.1") -> Settings:
    """This machine as another node of the fleet."""
    return settings.model_copy(update={"sim_node": name, "sim_slow": slow, "sim_driver": driver})


def arrive(*settings: Settings) -> None:
    """The GPU workers say that they are here, for an hour: on a busy machine a test takes longer than the minute after
    which a worker counts as silent (2026-11-29)."""
    for each in settings:
        context = Context.of(each)
        who = identify(f"gpu0@{context.simulation.node}", ["gpu.sim"], context)
        Heartbeat(context.database_url, who).write(None)
        with session(context.database_url) as opened:
            opened.execute(update(Worker).values(seen_at=text("now() + interval '1 hour'")))


def do_all_jobs(measuring: Settings, *others: Settings) -> None:
    """Every queued job, each where it belongs: what is for one GPU on that one, the rest on the first."""
    by_gpu = {f"SIM-{each.sim_node}": Context.of(each) for each in (measuring, *others)}
    context = Context.of(measuring)
    while True:
        with session(context.database_url) as opened:
            queued = jobs.list_unsent(opened, 0)
        if not queued:
            return
        for job in queued:
            gpu_uuid = job.queue.partition(OF_ONE_GPU)[2]
            run_job.run(job.id, "tester#1", by_gpu.get(gpu_uuid, context), (job.queue,))


def raised(settings: Settings) -> list[Regression]:
    with session(Context.of(settings).database_url) as opened:
        return list(opened.scalars(select(Regression).order_by(Regression.id)))


def last_verdicts(settings: Settings) -> list[tuple[str, str]]:
    """Of the newest night."""
    with session(Context.of(settings).database_url) as opened:
        newest = select(Verdict.verdict, Verdict.reason).join(Run, Run.id == Verdict.run_id).order_by(Run.id.desc())
        return [(verdict, reason) for verdict, reason in opened.execute(newest.limit(len(tiny_repository.PROBLEMS)))]


def test_a_slow_node_is_told_from_slow_code(watched: Settings, tmp_path: Path) -> None:
    """The whole road with real workers: the second night is measured by a node that is 5 % slower, the code is the
    same, both nodes replay the same cubin, and the node is what people are told of."""
    (sha,) = git_history.make(tmp_path / "watched").values()
    first, second = node(watched, "n1"), node(watched, "n2", SLOW)
    context, log = Context.of(watched), watched.home / "cpu@test.log"
    with contextlib.ExitStack() as fleet:
        fleet.enter_context(celery_worker(watched, queues="compile,judge", name="cpu@test"))
        with celery_worker(first, queues="gpu.sim", name="gpu0@n1"):
            submit_night(watched, sha, 0)
            wait_for(lambda: all_done(context), log)
        # The first node stays for what is asked of its GPU alone, so that the other one measures the night.
        for settings, queue in ((first, f"gpu.sim{OF_ONE_GPU}SIM-n1"), (second, "gpu.sim")):
            fleet.enter_context(celery_worker(settings, queues=queue, name=f"gpu0@{settings.sim_node}"))
        wait_for(lambda: {worker.host for worker in workers(context) if worker.kind == "gpu"} == {"n1", "n2"})
        submit_night(watched, sha, 1)
        wait_for(lambda: all_done(context), log)
    with session(context.database_url) as opened:
        held = list(opened.scalars(select(Replay).where(Replay.axis == "node").order_by(Replay.id)))
        queues = set(opened.scalars(select(Job.queue).where(Job.key.contains(":node:"))))
        states = set(opened.scalars(select(Suspicion.state)))
        (regression,) = opened.scalars(select(Regression))
        series = opened.scalars(select(RegressionSeries.size)).all()
        story = messages.find_story(opened, regression.id)
        run_id = opened.scalars(select(RegressionSeries.run_id)).first()
        evidence = replays.list_replays(opened, run_id or 0)
    assert sorted(each.host or "" for each in held) == ["n1"] * len(tiny_repository.PROBLEMS) + ["n2"] * len(
        tiny_repository.PROBLEMS
    )
    assert all(each.good_content_key == each.bad_content_key for each in held), "the same stored cubin"
    assert queues == {"gpu.sim@SIM-n1", "gpu.sim@SIM-n2"}
    assert (states, regression.category, len(series)) == ({"confirmed"}, "node", len(tiny_repository.PROBLEMS))
    assert series == pytest.approx([SLOW] * len(series), abs=0.003)
    assert regression.cause.startswith("node n2 is 5.0% slower than n1, the code is not: it is the same cubin")
    assert {verdict for verdict, _ in last_verdicts(watched)} == {"regression"}
    assert story is not None
    message = wording.regression_text(story, "opened", "http://board")
    assert "Cause (node): node n2 is 5.0% slower than n1" in message.body
    assert "First seen at:" in message.body, "no commit is blamed for a node"
    assert {row.host for row in evidence if row.axis == "node"} == {"n1", "n2"}


def test_what_a_commit_did_and_what_the_node_did_are_told_apart(watched: Settings, tmp_path: Path) -> None:
    """Both changed in one night: the commit has its regression, the node has its own, each with its own size."""
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    first, second = node(watched, "n1"), node(watched, "n2", SLOW)
    arrive(first, second)
    submit_night(watched, shas[git_history.BASE], 0)
    do_all_jobs(first)
    submit_night(watched, shas[git_history.ADD], 1)
    do_all_jobs(second, first)
    found = {regression.category: regression for regression in raised(watched)}
    assert set(found) == {"code", "node"}
    assert found["node"].size == pytest.approx(SLOW, abs=0.003)
    assert "the code is" in found["node"].cause
    assert "on both nodes" in found["node"].cause
    assert any("new code against old on n1" in line for line in found["node"].explanation)


def test_a_node_that_is_known_to_be_slow_is_not_asked_about_every_night(watched: Settings, tmp_path: Path) -> None:
    shas = git_history.make(tmp_path / "watched", git_history.WORDS, git_history.NAME)
    first, second = node(watched, "n1"), node(watched, "n2", SLOW)
    arrive(first, second)
    for night, (sha, measuring, other) in enumerate(
        zip(shas.values(), (first, second, first), (second, first, second), strict=True)
    ):
        submit_night(watched, sha, night)
        do_all_jobs(measuring, other)
    with session(Context.of(watched).database_url) as opened:
        held = list(opened.scalars(select(Replay.id).where(Replay.axis == "node")))
    assert len(held) == 2 * len(tiny_repository.PROBLEMS), "of the night that found it, on both nodes"
    assert [regression.category for regression in raised(watched)] == ["node"]
    assert {verdict for verdict, _ in last_verdicts(watched)} == {"unchanged"}


def test_a_node_that_was_mended_closes_its_regression_and_one_that_falls_back_opens_it_again(
    watched: Settings, tmp_path: Path
) -> None:
    """It looks as fast as the other one again; both replay the same cubin, and then it is over, without anybody."""
    (sha,) = git_history.make(tmp_path / "watched").values()
    first, second, mended = node(watched, "n1"), node(watched, "n2", SLOW), node(watched, "n2")
    arrive(first, second)
    for night, (measuring, other) in enumerate(((first, second), (second, first), (mended, first))):
        submit_night(watched, sha, night)
        do_all_jobs(measuring, other)
    (regression,) = raised(watched)
    with session(Context.of(watched).database_url) as opened:
        events = [event.action for event in reversed(regressions.list_events(opened, regression.id))]
    assert (regression.category, regression.state) == ("node", "resolved")
    assert events == ["open", "join", "recover", "recover", "resolve"]
    submit_night(watched, sha, 3)
    do_all_jobs(second, first)
    (again,) = raised(watched)
    assert (again.id, again.state) == (regression.id, "reopened"), "it fell ill again, which is the same story"


def test_a_faster_node_raises_nothing(watched: Settings, tmp_path: Path) -> None:
    (sha,) = git_history.make(tmp_path / "watched").values()
    slow, fast = node(watched, "n1", SLOW), node(watched, "n2")
    arrive(slow, fast)
    submit_night(watched, sha, 0)
    do_all_jobs(slow)
    submit_night(watched, sha, 1)
    do_all_jobs(fast, slow)
    assert raised(watched) == []
    for verdict, reason in last_verdicts(watched):
        assert verdict == "undecided", "it has no history on this node"
        assert re.match(r"node n2 is 4\.[78]% faster than n1, the code is not: it is the same cubin", reason)


def test_a_new_driver_is_held_against_a_node_that_has_the_old_one(watched: Settings, tmp_path: Path) -> None:
    """Both nodes measured the commit, the second a little slower; then the second's driver is replaced."""
    (sha,) = git_history.make(tmp_path / "watched").values()
    first, second = node(watched, "n1"), node(watched, "n2", 0.008)
    for night, measuring in enumerate((first, second)):
        submit_night(watched, sha, night)
        do_all_jobs(measuring)
    renewed = node(watched, "n2", 0.008 + SLOW, driver="590.2")
    arrive(first, renewed)
    submit_night(watched, sha, 2)
    do_all_jobs(renewed, first)
    submit_night(watched, sha, 3)
    do_all_jobs(renewed, first)  # it stays as slow, which is no news of the node
    (regression,) = raised(watched)
    assert regression.category == "toolchain"
    assert regression.size == pytest.approx(SLOW, abs=0.004)
    assert regression.cause.startswith("the new driver (580.1 -> 590.2) is 5.0% slower on n2 than the old one")


def test_a_question_to_a_gpu_that_went_away_is_given_up(watched: Settings, tmp_path: Path) -> None:
    """Its night is judged without it, and says so."""
    (sha,) = git_history.make(tmp_path / "watched").values()
    first, second = node(watched, "n1"), node(watched, "n2", SLOW)
    context = Context.of(second)
    arrive(first, second)
    submit_night(watched, sha, 0)
    do_all_jobs(first)
    submit_night(watched, sha, 1)
    while True:  # nobody takes what is for n1's GPU
        with session(context.database_url) as opened:
            queued = [job for job in jobs.list_unsent(opened, 0) if not job.queue.endswith("SIM-n1")]
        if not queued:
            break
        run_job.run(queued[0].id, "tester#1", context, (queued[0].queue,))
    reconcile(context.database_url, context.broker_url)
    assert {verdict for verdict, _ in last_verdicts(watched)} == {"undecided"}
    with session(context.database_url) as opened:
        assert gpus.list_stranded_jobs(opened) == [], "the worker of n1 is only late"
        opened.execute(update(Worker).where(Worker.host == "n1").values(seen_at=text("now() - interval '20 min'")))
        opened.execute(update(Job).values(created_at=text("now() - interval '20 min'")))
        assert gpus.list_stranded_jobs(opened) == [], "a run ended on it a moment ago: its worker starts again"
        opened.execute(update(Run).values(finished_at=Run.finished_at - dt.timedelta(minutes=20)))
    reconcile(context.database_url, context.broker_url)
    do_all_jobs(second)
    assert raised(watched) == []
    assert all("node against node could not be replayed: n1" in reason for _, reason in last_verdicts(watched))
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Suspicion.state))) == {"undecided"}


def test_a_worker_leaves_a_replay_for_another_gpu(watched: Settings, tmp_path: Path) -> None:
    (sha,) = git_history.make(tmp_path / "watched").values()
    first, second = node(watched, "n1"), node(watched, "n2", SLOW)
    arrive(first, second)
    submit_night(watched, sha, 0)
    do_all_jobs(first)
    submit_night(watched, sha, 1)
    with pytest.raises(NotNow, match="this job is for GPU SIM-n1, and this worker has SIM-n2"):
        do_all_jobs(second)  # it is handed what is for n1 too, by mistake
    with session(Context.of(watched).database_url) as opened:
        left = opened.execute(select(Job.state).where(Job.queue == "gpu.sim@SIM-n1")).all()
    assert {row.state for row in left} == {"queued"}


def fact(good_us: float, bad_us: float) -> ReplayFact:
    wobble = (0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.0)
    times = [tuple(us * (1.0 + each / 100) for each in wobble) for us in (good_us, bad_us)]
    return ReplayFact("double", "1024", 1, 2, 1, 2, "old", "new", times[0], times[1], None)


def suspicion() -> NodeSuspicion:
    point = Point(1, 2, "double", "1024", "n2", "toolchain", 105.0, 104.9, 105.1, None, None)
    there, here = (gpus.NodeGpu(host, f"GPU-{host}", "580.1") for host in ("n1", "n2"))
    side = BuildSide(1, "a" * 40, 1, {"width": 64}, True, None)
    question = BuildQuestion("key", "double", "1024", "sim", "sm_90", "simulated", "node", 0, LAUNCHES, side, side)
    before = NightBefore(1, 1, "a" * 40, 100.0)
    return NodeSuspicion(point, before, there, here, 0.05, False, None, 0.0, (question, question))


@pytest.mark.parametrize(
    ("there", "here", "sentence"),
    [
        ((100.0, 100.0), (105.0, 105.0), "node n2 is 5.0% slower than n1, the code is not: +0.0%"),
        (
            (100.0, 104.0),
            (100.0, 104.0),
            "node n2 is as fast as n1 (+0.0% (-0.0% to +0.0%)), the code is slower on both",
        ),
        ((100.0, 104.0), (105.0, 109.2), "node n2 is 5.0% slower than n1, the code is slower on both nodes: +4.0%"),
        (
            (100.0, 100.0),
            (100.0, 104.0),
            "node n2 is as fast as n1 (+0.0% (-0.0% to +0.0%)), the code differs on n2 alone",
        ),
        ((100.0, 100.0), (100.2, 100.2), "node n2 is as fast as n1 (+0.2%"),
    ],
)
def test_the_sentence_says_what_is_slower(there: tuple[float, float], here: tuple[float, float], sentence: str) -> None:
    answer = compare(fact(*there), fact(*here), same_code=False)
    assert node_comparison.write_sentence(suspicion(), answer, Policy()).startswith(sentence)


SCOPE = Scope(1, 1, "a" * 40, 1, "watched", "sim", "sm_90", "simulated")
HERE, LAST_HERE, OTHER, NEWER_OTHER = 4, 1, 2, 3
"""Runs: tonight's, the last one on the same node, and two on the other node."""


def suspect(
    time_us: float,
    drivers: tuple[str, str, str] = ("580", "580", "580"),
    others_us: tuple[float, ...] = (100.0,),
    *,
    last_here: bool = True,
    unknown: int | None = None,
    other_code: str = "old",
) -> NodeSuspicion | None:
    """What is suspected of a time on n2, whose last one was 100 us. `drivers` are of the last run on n2, of tonight's
    and of the runs on n1. No winner is known of the run `unknown`."""
    before, now, other = drivers
    gpus_of_runs = {
        LAST_HERE: gpus.NodeGpu("n2", "GPU-n2", before),
        HERE: gpus.NodeGpu("n2", "GPU-n2", now),
        OTHER: gpus.NodeGpu("n1", "GPU-n1", other),
        NEWER_OTHER: gpus.NodeGpu("n1", "GPU-n1", other),
    }
    codes = {LAST_HERE: "old", OTHER: other_code, NEWER_OTHER: other_code, HERE: "new"}
    won = {
        run_id: Winner(run_id, run_id, "source", 1, {"width": 64}, f"key of {run_id}", "double", code, "compiler")
        for run_id, code in codes.items()
        if run_id != unknown
    }
    point = Point(1, HERE, "double", "1024", "n2", "toolchain", time_us, time_us, time_us, None, None)
    others = [
        NightBefore(run_id, run_id, "b" * 40, us) for run_id, us in zip((OTHER, NEWER_OTHER), others_us, strict=False)
    ]
    night_here = NightBefore(LAST_HERE, LAST_HERE, "b" * 40, 100.0) if last_here else None
    return node_cause._suspect(SCOPE, point, night_here, others, gpus_of_runs, won)


@pytest.mark.parametrize(
    ("time_us", "moved"), [(102.1, 0.021), (101.9, None), (98.1, None), (97.9, -0.021), (100.0, None)]
)
def test_a_node_is_suspected_of_two_per_cent(time_us: float, moved: float | None) -> None:
    found = suspect(time_us)
    assert (None if found is None else found.moved) == (None if moved is None else pytest.approx(moved))
    assert found is None or (found.what, found.driver, found.apart) == ("n1 and n2", None, 0.0)


@pytest.mark.parametrize(
    ("drivers", "driver"),
    [
        (("580", "590", "580"), "580 -> 590"),
        (("580", "580", "580"), None),
        (("580", "590", "590"), None),
        (("580", "590", "570"), None),
    ],
)
def test_a_new_driver_is_suspected_if_the_other_node_has_the_old_one(
    drivers: tuple[str, str, str], driver: str | None
) -> None:
    found = suspect(105.0, drivers, (98.0,))
    assert found is not None
    assert (found.driver, found.before.run_id) == (driver, LAST_HERE if driver else OTHER)
    assert found.moved == pytest.approx(105 / (100 if driver else 98) - 1)
    assert found.apart == pytest.approx(math.log(100 / 98) if driver else 0.0)
    assert (found.there.host, found.here.host, found.same_code) == ("n1", "n2", False)
    first, second = found.questions
    assert [(each.host, each.gpu_uuid, each.launches, each.axis) for each in (first, second)] == [
        ("n1", "GPU-n1", 8, "node"),
        ("n2", "GPU-n2", 8, "node"),
    ]
    assert first.key != second.key
    assert (first.base.sha, first.head.sha) == ("b" * 40, SCOPE.sha)
    assert first.head.code is not None
    assert first.head.code.content_key == f"key of {HERE}"


@pytest.mark.parametrize(("time_us", "is_suspected"), [(101.1, True), (100.9, False), (99.1, False), (98.9, True)])
def test_a_new_driver_is_suspected_of_one_per_cent(time_us: float, is_suspected: bool) -> None:
    """Nor is the node then, however far apart both are: they were before."""
    found = suspect(time_us, ("580", "590", "580"), (90.0,))
    assert (found is not None and found.driver is not None) == is_suspected


@pytest.mark.parametrize(("limit", "others_us"), [("WELL_GPUS_DIFFER", (90.0,)), ("APART", (100.0,))])
@pytest.mark.parametrize(
    ("time_us", "is_suspected"), [(101.5625, True), (101.56, False), (98.4375, True), (98.44, False)]
)
def test_the_smallest_difference_that_is_suspected_is_suspected_itself(
    monkeypatch: pytest.MonkeyPatch, limit: str, others_us: tuple[float, ...], time_us: float, is_suspected: bool
) -> None:
    """No quotient of two times is as far from 1 as a hundredth is exactly; a limit of 1/64 is met."""
    monkeypatch.setattr(node_cause, limit, 1 / 64)
    new_driver, same_driver = ("580", "590", "580"), ("580", "580", "580")
    found = suspect(time_us, new_driver if limit == "WELL_GPUS_DIFFER" else same_driver, others_us)
    assert (found is not None) == is_suspected


def test_a_node_is_suspected_where_a_driver_cannot_be() -> None:
    new_driver = ("580", "590", "580")
    cases = [suspect(105.0, new_driver, last_here=False), suspect(105.0, new_driver, unknown=LAST_HERE)]
    for found in [*cases, suspect(105.0, new_driver, other_code="other")]:
        assert found is not None
        assert (found.driver, found.before.run_id) == (None, OTHER)


@pytest.mark.parametrize("drivers", [("580", "580", "580"), ("580", "590", "580")])
def test_nothing_is_suspected_without_a_winner_tonight_or_another_node(drivers: tuple[str, str, str]) -> None:
    assert suspect(105.0, drivers, unknown=HERE) is None
    assert suspect(105.0, drivers, ()) is None


def test_a_node_is_compared_with_the_newest_run_on_another_node() -> None:
    found = suspect(105.0, others_us=(90.0, 100.0))
    assert found is not None
    assert (found.before.run_id, found.moved) == (NEWER_OTHER, pytest.approx(0.05))


@pytest.mark.parametrize(("moved", "asked"), [(0.025, True), (-0.025, True), (0.0251, False), (-0.0251, False)])
def test_a_node_is_asked_whether_it_is_over_when_half_of_the_difference_is_gone(
    monkeypatch: pytest.MonkeyPatch, moved: float, asked: bool
) -> None:
    here = replace(suspicion(), moved=moved)
    monkeypatch.setattr(node_cause, "_against_newest", lambda *_: here)
    again = node_cause._ask_whether_it_is_over(SCOPE, here.point, [], {}, {}, {here.what: 0.05})
    assert (again is not None) == asked
    assert again is None or again.reported_size == 0.05
    assert node_cause._ask_whether_it_is_over(SCOPE, here.point, [], {}, {}, {"another pair": 0.05}) is None


CUBINS = ("cubin 1", "cubin 2")


class Fleet:
    """One kernel that two nodes measured, each once, and workers for both of their GPUs."""

    def __init__(self, opened: Session) -> None:
        self.session, self.runs = opened, []
        for number in (1, 2):
            planned = one_commit.submit(opened, key=f"night {number}", sha=f"{number}" * 40, position=number)
            compiler = f"compiler {number}"
            rows = [one_commit.compiled(code, compiler=compiler) for code in planned.code_keys]
            fact_writes.add_compilations(opened, [{**row, "content_key": f"cubin {number}"} for row in rows])
            fact_writes.attach_compilations(opened, compiler=compiler, sweep_ids=[planned.sweep_id])
            self.runs.append(one_commit.measure(opened, planned, key=f"run {number}"))
            run = opened.get_one(Run, self.runs[-1])
            run.host, run.gpu_uuid = f"n{number}", f"GPU-{number}"
            columns = {"kind": "gpu", "host": run.host, "gpu_model": "b200", "gpu_uuid": run.gpu_uuid, "toolchain": {}}
            opened.add(Worker(name=f"gpu0@n{number}", **columns))
        opened.flush()
        self.scope = Scope(planned.submission_id, 2, "2" * 40, 2, "tilewatch", "b200", "sm_100", "measured")

    def suspect(self, times_us: Mapping[str, float], *stored: str) -> list[tuple[str, float]]:
        """The problems that are suspected of a node, whose times on the other node were 100 us, and their moves."""
        first, second = self.runs
        before, points = {}, {}
        for problem, time_us in times_us.items():
            point = Point(1, second, "gemm", problem, "n2", "toolchain", time_us, time_us, time_us, None, None)
            before["gemm", problem, "n1"] = NightBefore(first, 1, "1" * 40, 100.0)
            points["gemm", problem, "n2"] = point
        store: Any = SimpleNamespace(outcome=lambda key: object() if key in (stored or CUBINS) else None)
        found = node_cause.find_suspicions(self.session, store, self.scope, before, points)
        return [(each.point.problem, round(each.moved, 6)) for each in found]


def test_the_largest_moves_of_a_night_are_replayed_on_two_nodes(db_session: Session) -> None:
    """At most four of them, whether slower or faster."""
    times_us = {"a": 103.0, "b": 90.0, "c": 101.5, "d": 105.0, "e": 97.0, "f": 104.0, "g": 100.0}
    fleet = Fleet(db_session)
    assert fleet.suspect(times_us) == [("b", -0.1), ("d", 0.05), ("f", 0.04), ("a", 0.03)]
    assert fleet.suspect({"c": 101.5, "g": 100.0}) == []
    for only in CUBINS:
        assert fleet.suspect(times_us, only) == [], "both cubins are replayed on both nodes"


@pytest.mark.parametrize(
    ("time_us", "of_reported", "of_others"),
    [(105.0, [], [("b", 0.05)]), (103.0, [], [("b", 0.03)]), (102.5, [("a", 0.025)], [("b", 0.025)])]
    + [(time_us, [("a", round(time_us / 100 - 1, 6))], []) for time_us in (101.5, 100.5)],
)
def test_a_slow_node_that_is_reported_is_asked_only_whether_it_is_as_fast_again(
    db_session: Session,
    monkeypatch: pytest.MonkeyPatch,
    time_us: float,
    of_reported: list[tuple[str, float]],
    of_others: list[tuple[str, float]],
) -> None:
    """It is asked when half of the 5 % is gone, though the rest is too little to suspect a node of."""
    fleet = Fleet(db_session)
    monkeypatch.setattr(gpus, "read_open_causes", lambda *_: {("gemm", "a"): {"n1 and n2": 0.05}})
    assert fleet.suspect({"a": time_us, "b": time_us}) == [*of_reported, *of_others]


OF_NODE = ReplayFact("k", "p", 1, 1, 1, 1, "code", "code", (100.0,) * 8, (100.0,) * 8, None)


@pytest.mark.parametrize(
    ("facts", "given_up", "failure"),
    [
        ((OF_NODE, OF_NODE), False, None),
        ((OF_NODE, None), True, "n2: the GPU could not be asked"),
        ((None, OF_NODE), True, "n1: the GPU could not be asked"),
        ((OF_NODE, replace(OF_NODE, good_us=(), bad_us=(), failure="it is wrong")), False, "n2: it is wrong"),
    ],
)
def test_an_answer_of_two_nodes_needs_launches_on_both(
    monkeypatch: pytest.MonkeyPatch,
    facts: tuple[ReplayFact | None, ReplayFact | None],
    given_up: bool,
    failure: str | None,
) -> None:
    asked, session = suspicion(), cast(Session, None)
    first, second = (
        replace(each, key=host, host=host) for each, host in zip(asked.questions, ("n1", "n2"), strict=True)
    )
    asked = replace(asked, questions=(first, second))
    monkeypatch.setattr(judging, "find_replay", lambda _, key: facts[key == "n2"])
    monkeypatch.setattr(judging, "was_given_up", lambda *_: given_up)
    answer = node_cause.read_answer(session, asked)
    assert answer is not None
    assert (answer.failure, answer.node is None) == (failure, failure is not None)
    monkeypatch.setattr(judging, "was_given_up", lambda *_: False)
    assert (node_cause.read_answer(session, asked) is None) == (None in facts)


@pytest.mark.parametrize("away", ["GPU-1", "GPU-2", None])
def test_a_node_is_not_replayed_while_either_gpu_is_away(db_session: Session, away: str | None) -> None:
    fleet = Fleet(db_session)
    db_session.execute(delete(Worker).where(Worker.gpu_uuid == away))
    assert fleet.suspect({"a": 105.0}) == ([("a", 0.05)] if away is None else [])


def test_runs_of_one_node_suspect_no_node(db_session: Session) -> None:
    fleet = Fleet(db_session)
    db_session.get_one(Run, fleet.runs[0]).host = "n2"
    db_session.flush()
    assert fleet.suspect({"a": 105.0}) == []


@pytest.mark.parametrize(
    ("here", "replays", "given_up", "can_be"),
    [
        (("n1", "n2"), 0, 0, True),
        (("n1",), 0, 0, False),
        ((), 0, 0, False),
        ((), 2, 0, True),
        ((), 0, 2, True),
        ((), 1, 1, True),
        ((), 1, 0, False),
        ((), 0, 1, False),
    ],
)
def test_both_nodes_are_asked_if_both_are_here_or_have_answered_or_never_will(
    db_session: Session, here: tuple[str, ...], replays: int, given_up: int, can_be: bool
) -> None:
    planned = one_commit.submit(db_session)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    scope = replace(SCOPE, submission_id=planned.submission_id, gpu_model="b200")
    asked = suspicion()
    asked = replace(asked, questions=(replace(asked.questions[0], key="1"), replace(asked.questions[1], key="2")))
    for host in here:
        db_session.add(
            Worker(
                name=host, kind="gpu", host=host, gpu_model="b200", gpu_uuid=f"GPU-{host}", toolchain={"driver": "1"}
            )
        )
    of = {"kernel": "double", "problem": "1024", "gpu_model": "b200", "gpu_s": 1.0, "origin": "measured"}
    ends = {"good_commit_id": commit_id, "bad_commit_id": commit_id, "axis": "node", "suspicion_id": None}
    for question in asked.questions[:replays]:
        suspicions.write_replay(db_session, question.key, {**of, **ends}, good_us=[1.0], bad_us=[1.0])
    for question in asked.questions[replays : replays + given_up]:
        job_id = one_commit.job(db_session, judging.job_keys(question.key)[1], kind="confirm")
        values = {"state": "cancelled", "submission_id": scope.submission_id}
        db_session.execute(update(Job).where(Job.id == job_id).values(values))
    db_session.flush()
    assert node_cause._can_be_asked(db_session, scope, asked) == can_be
