"""The readings by which a GPU is judged to be ill are those of its own newest runs."""

import datetime as dt

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import Quarantine, Run
from tilewatch.db.page_reads import gpu_health


def test_readings_are_those_of_so_many_newest_runs_of_the_gpu(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = one_commit.submit(db_session)
    for hour, gpu in enumerate("aaaab"):
        run_id = one_commit.measure(db_session, planned, f"run {hour}")
        row = {"gpu_uuid": gpu, "telemetry": [{"hour": hour}, {"hour": hour + 0.5}]}
        at = {"started_at": NOON - dt.timedelta(hours=hour), "finished_at": NOON}
        db_session.execute(update(Run).where(Run.id == run_id).values(**row, **at))
    monkeypatch.setattr(quarantine, "CANARY_RUNS", 3)
    readings = quarantine.list_readings(db_session, "a")
    assert [each["hour"] for each in readings] == [0, 0.5, 1, 1.5, 2, 2.5]
    assert [each["hour"] for each in quarantine.list_readings(db_session, "b")] == [4, 4.5]


def test_every_gpu_in_quarantine_is_listed_however_many_there_are(db_session: Session) -> None:
    """Beyond 50, GPUs got no sweeps, and neither an alarm nor the status named them."""
    one_commit.submit(db_session)
    gpus = [f"GPU-{number}" for number in range(60)]
    for gpu in ("ended", *gpus):
        of = {"gpu_uuid": gpu, "gpu_model": "b200", "host": "node-1"}
        assert quarantine.begin(db_session, **of, kind="xid", reason="it is ill", evidence={})
    db_session.execute(update(Quarantine).where(Quarantine.gpu_uuid == "ended").values(ended_at=NOON))
    assert {row.gpu_uuid for row in gpu_health.list_quarantines(db_session)} == {*gpus, "ended"}
    assert {row.gpu_uuid for row in gpu_health.list_quarantines(db_session, limit=0)} == set(gpus)
