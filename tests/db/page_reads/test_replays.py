"""The replays behind a verdict are those of the run's own suspicion, and others of its series and commit."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tests.worker.fixtures import open_regression
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.models import Replay, Run, Sweep
from tilewatch.db.page_reads import replays

OF = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200"}


def commit_of(opened: Session, run_id: int) -> int:
    return opened.scalars(select(Sweep.commit_id).join(Run, Run.sweep_id == Sweep.id).where(Run.id == run_id)).one()


def suspect(opened: Session, night: int) -> tuple[int, int]:
    """Returns a run of the night and the suspicion of the run."""
    planned = one_commit.submit(opened, f"night {night}", sha=f"{night:040x}", position=night)
    run_id = one_commit.measure(opened, planned, f"run {night}")
    ends = dict.fromkeys(("good_commit_id", "bad_commit_id"), commit_of(opened, run_id))
    return run_id, suspicions.open_once(opened, run_id=run_id, **OF, **ends, size=0.05, reason=f"of night {night}")


def test_a_run_has_its_own_suspicion_alone(db_session: Session) -> None:
    first, second = (suspect(db_session, night)[0] for night in (1, 2))
    suspicions.close(db_session, second, "refuted", "replays do not show it")
    found = [replays.find_suspicion(db_session, each) for each in (first, second, 4711)]
    assert [each and (each.state, each.reason) for each in found] == [
        ("open", "of night 1"),
        ("refuted", "replays do not show it"),
        None,
    ]


@pytest.mark.parametrize(
    ("row", "is_listed"),
    [
        ({}, True),
        ({"suspicion": "own", "bad": "earlier"}, True),
        ({"suspicion": "other"}, True),
        ({"suspicion": "other", "bad": "earlier"}, False),
        ({"bad": "earlier"}, False),
        ({"kernel": "norm"}, False),
        ({"problem": "1x1x1"}, False),
        ({"gpu_model": "h200"}, False),
        ({"good": "of another repository"}, False),
    ],
    ids=str,
)
def test_a_replay_belongs_to_a_run_by_the_suspicion_or_by_its_series_and_commit(
    db_session: Session, row: dict[str, Any], is_listed: bool
) -> None:
    fact_writes.add_gpu_model(db_session, slug="h200", name="H200", arch="sm_90", fp8_tflops=None, bandwidth_gbps=None)
    (earlier, other), (run_id, own) = (suspect(db_session, night) for night in (1, 2))
    elsewhere = open_regression.commit(db_session, 1, "e" * 40, "Elsewhere", "theirs")
    ids = {"earlier": commit_of(db_session, earlier), "of another repository": elsewhere}
    commit_ids = {"good_commit_id": ids[row.pop("good", "earlier")]}
    commit_ids["bad_commit_id"] = ids.get(row.pop("bad", ""), commit_of(db_session, run_id))
    suspicion_id = {"own": own, "other": other}.get(row.pop("suspicion", ""))
    held = {**OF, **commit_ids, "axis": "commit", "suspicion_id": suspicion_id, "gpu_s": 2.0, "origin": "measured"}
    suspicions.write_replay(db_session, "replay", {**held, **row}, good_us=[1.0], bad_us=[2.0])
    listed = [(each.good_sha, each.good_us, each.bad_us) for each in replays.list_replays(db_session, run_id)]
    assert listed == ([(f"{1:040x}", [1.0], [2.0])] if is_listed else [])


def test_replays_are_listed_the_oldest_first(db_session: Session) -> None:
    run_id, own = suspect(db_session, 1)
    ends = dict.fromkeys(("good_commit_id", "bad_commit_id"), commit_of(db_session, run_id))
    held = {**OF, **ends, "axis": "commit", "suspicion_id": own, "gpu_s": 2.0, "origin": "measured"}
    for number, hour in enumerate((3, 1, 1, 2)):
        suspicions.write_replay(db_session, f"{number}", held, good_us=[float(number)], bad_us=[1.0])
        at = NOON + dt.timedelta(hours=hour)
        db_session.execute(update(Replay).where(Replay.key == f"{number}").values(at=at))
    db_session.execute(update(Replay).where(Replay.key == "2").values(id=0))  # stored after the one of its time
    assert [each.good_us for each in replays.list_replays(db_session, run_id)] == [[2.0], [1.0], [3.0], [0.0]]
