"""A config outside the short list that wins: a replay beside the best of the list, a finding, one alarm."""

import datetime as dt
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.nights import do_nights, read_verdicts
from tests.worker.fixtures.worker_context import settings_for
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.alarms import BEATEN_LIST
from tilewatch.db.models import Alarm, Measurement, Message, Replay, Suspicion, Sweep, Trial
from tilewatch.db.session import session
from tilewatch.db.worker_reads.judging import Point, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.judging import beaten_list
from tilewatch.worker.judging.beaten_list import is_beaten
from tilewatch.worker.judging.compiler_cause import PairAnswer
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.update_alarms import update_alarms
from tilewatch.worker.settings import Settings

SHORT_LIST = 'short_lists={"sm_90": ShortList(lambda config: config["width"] == LISTED, "c", (), "s", "d")},'


@pytest.fixture
def watched(
    tmp_path: Path, database_url: str, broker_url: str, known_cubins: str, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    source = tiny_repository.SOURCE.replace("import Array, ", "import Array, ShortList, ")
    monkeypatch.setattr(tiny_repository, "SOURCE", source.replace("baselines=(),", f"baselines=(), {SHORT_LIST}"))
    made = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)
    return made.model_copy(update={"sim_seed": git_history.SIM_SEED})


def do_three_nights(settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch, listed: int) -> Context:
    monkeypatch.setattr(tiny_repository, "SOURCE", tiny_repository.SOURCE.replace("LISTED", str(listed)))
    (sha,) = git_history.make(folder).values()
    return do_nights(settings, sha, sha, sha)


def test_a_better_config_outside_the_list_is_replayed_once_and_is_one_alarm_per_night(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the simulated times 64 and 256 beat 128, and 256 beats 64. The second problem draws both in turn."""
    context = do_three_nights(watched, tmp_path / "watched", monkeypatch, listed=128)
    out = Outbox.of(watched)
    update_alarms(out, [], watched, 0.1, dt.datetime.now(dt.UTC))
    with session(context.database_url) as opened:
        replays = opened.scalars(select(Replay).where(Replay.axis == "config").order_by(Replay.id)).all()
        found = opened.scalars(select(Alarm).order_by(Alarm.id)).all()
        states = opened.scalars(select(Suspicion.state)).all()
        messages = opened.scalars(select(Message.subject).where(Message.kind == BEATEN_LIST)).all()
    assert [(each.problem, each.good_commit_id == each.bad_commit_id) for each in replays] == [
        ("2048", True),
        ("1024", True),
        ("2048", True),
    ]
    assert [len(alarm.detail.splitlines()) for alarm in found] == [2, 3], "a head, and a line per problem"
    assert len(messages) == 2
    line = r"2048: width=64, which is outside the short list, differs by -5\d\.\d% \(-5\S+ to -5\S+\) from width=128"
    assert re.search(line, found[0].detail)
    assert set(states) == {"confirmed"}
    (verdicts,) = read_verdicts(context).values()
    assert ["outside the short list" in reason for _, reason in verdicts] == [False, True, True, True, False, False]
    assert {verdict for verdict, _ in verdicts} == {"undecided"}, "the time of the kernel did not change"


def test_a_list_with_the_best_config_raises_nothing(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = do_three_nights(watched, tmp_path / "watched", monkeypatch, listed=256)
    with session(context.database_url) as opened:
        assert not opened.scalars(select(Replay)).all()
        assert not opened.scalars(select(Alarm)).all()
        untried = select(Measurement.detail["certificate"]["untried"].as_integer()).order_by(Measurement.run_id)
        counts = opened.scalars(untried.where(Measurement.role == "kernel")).all()
    assert counts[-2:] == [0, 0], "and all others were tried"


def test_only_a_faster_config_beats_the_list() -> None:
    policy = Policy()
    answers = [PairAnswer(Estimate(size, 0.001, 8), False) for size in (-0.03, 0.03, -0.002)]
    assert [is_beaten(each, policy) for each in (*answers, PairAnswer(None, True), None)] == [True, *4 * [False]]


SERIES = ("gemm_fp8", "320x32576x7168", "node-a")


@pytest.mark.parametrize(
    ("stored", "ahead", "is_found"),
    [
        ("listed winner", 0.05, True),
        ("listed", 0.05, False),
        ("winner", 0.05, False),
        ("", 0.05, False),
        ("listed winner", 0.005, False),
    ],
)
def test_a_lead_is_replayed_if_the_store_has_the_machine_code_of_both_configs(
    db_session: Session, tmp_path: Path, stored: str, ahead: float, is_found: bool
) -> None:
    planned = one_commit.submit(db_session)
    fact_writes.add_compilations(db_session, [one_commit.compiled(each) for each in planned.code_keys])
    fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id])
    run_id = one_commit.measure(db_session, planned)
    winner, *listed = planned.config_ids
    space = db_session.get_one(Sweep, planned.sweep_id).space
    db_session.execute(update(Sweep).values(space={**space, "listed": listed}))
    db_session.execute(update(Trial).where(Trial.config_id == listed[1]).values(median_us=9.4))
    certificate = {"certificate": {"ahead": ahead, "ahead_before": 0.0}}
    db_session.execute(update(Measurement).where(Measurement.role == "kernel").values(detail=certificate))
    store = CubinStore(str(tmp_path))
    for name, code_key in zip(("winner", "other", "listed"), planned.code_keys, strict=False):
        if name in stored.split():
            store.put(str(one_commit.compiled(code_key)["content_key"]), {"status": "ok"}, b"cubin")
    sweep = db_session.get_one(Sweep, planned.sweep_id)
    scope = Scope(planned.submission_id, sweep.commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    point = Point(planned.submission_id, run_id, *SERIES, "toolchain", 9.05, 9.0, 9.1, None, None)
    unknown = Point(planned.submission_id, run_id + 1, *SERIES, "toolchain", 9.05, 9.0, 9.1, None, None)
    found = beaten_list.find_suspicions(db_session, store, scope, {SERIES: point, ("other", *SERIES[1:]): unknown})
    assert list(found) == ([SERIES] if is_found else [])
    for each in found.values():
        sides = each.question.base, each.question.head
        assert (
            [side.config_id for side in sides] == [each.listed.config_id, each.winner.config_id] == [listed[1], winner]
        )
        assert [side.sha for side in sides] == [scope.sha] * 2, "both are the night's own code"
        assert (each.question.axis, each.question.launches) == ("config", 8)


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (PairAnswer(Estimate(math.log(0.95), 0.0, 8), False), "differs by -5.0% (-5.0% to -5.0%) from"),
        (PairAnswer(Estimate(math.log(1.02), 0.0, 8), False), "differs by +2.0% (+2.0% to +2.0%) from"),
        (PairAnswer(None, True), "has the same machine code as"),
        (PairAnswer(None, False), "could not be replayed beside"),
    ],
)
def test_a_finding_says_how_the_winner_differs_from_the_best_of_the_list(answer: PairAnswer, how: str) -> None:
    suspicion: Any = SimpleNamespace(
        listed=SimpleNamespace(params={"tile_m": 32}), winner=SimpleNamespace(params={"tile_m": 64})
    )
    sentence = beaten_list.write_sentence(suspicion, answer)
    assert sentence == f"tile_m=64, which is outside the short list, {how} tile_m=32, the best of it"


def test_a_kernel_whose_list_was_beaten_has_one_alarm_that_names_its_problems_in_order(db_session: Session) -> None:
    """Processes that open alarms take turns. A slower winner and one without an answer beat nothing."""
    policy, scope = Policy(), Scope(3, 1, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    faster, slower = (PairAnswer(Estimate(size, 0.001, 8), False) for size in (-0.05, 0.05))
    answered: list[tuple[Any, PairAnswer | None]] = []
    for kernel, problem, answer in (
        *(("gemm", problem, faster) for problem in ("4096", "1024", "2048")),
        ("norm", "1", slower),
        ("norm", "2", None),
    ):
        point = SimpleNamespace(kernel=kernel, problem=problem)
        sides = {name: SimpleNamespace(params={"tile_m": tile}) for name, tile in (("listed", 32), ("winner", 64))}
        answered.append((SimpleNamespace(point=point, **sides), answer))
    for _ in range(2):
        beaten_list.open_list_alarms(db_session, scope, policy, answered)
    held = text("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    assert db_session.scalar(held) == 1
    (alarm,) = db_session.scalars(select(Alarm))
    assert (alarm.kind, alarm.key) == (BEATEN_LIST, f"{BEATEN_LIST}/gemm/b200/3")
    assert alarm.subject == "gemm of tilewatch on b200 at ababababab"
    heading, *lines = alarm.detail.splitlines()
    assert heading == "Replays confirmed a faster config with this compiler:"
    assert [line.partition(":")[0] for line in lines] == ["  1024", "  2048", "  4096"]
