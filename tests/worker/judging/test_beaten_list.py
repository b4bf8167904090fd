"""A config outside the short list that wins: a replay beside the best of the list, a finding, one alarm."""

import datetime as dt
import re
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.nights import do_nights, read_verdicts
from tests.worker.fixtures.worker_context import settings_for
from tilewatch.db.lifecycle.alarms import BEATEN_LIST
from tilewatch.db.models import Alarm, Measurement, Message, Replay, Suspicion
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate
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
