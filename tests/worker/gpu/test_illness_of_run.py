"""A run counts unless its readings, its canaries or a quarantine meanwhile say that its GPU was ill."""

import datetime as dt
from dataclasses import replace

import pytest
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import run_result
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import GpuModel, Quarantine, Run
from tilewatch.kernels.results import RunResult
from tilewatch.worker.gpu.quarantine import illness_of_run, refuse_if_ill
from tilewatch.worker.queue.outage import NotNow

RESULT = run_result.result()
MINUTE = dt.timedelta(minutes=1)


def isolate(opened: Session, began_at: dt.datetime, ended_at: dt.datetime | None, uuid: str = RESULT.gpu_uuid) -> None:
    opened.execute(insert(GpuModel).values(slug="h200", name="H200", arch="sm_90").on_conflict_do_nothing())
    row = {"gpu_model": "h200", "host": "n1", "kind": "xid", "evidence": {}}
    quarantine.begin(opened, gpu_uuid=uuid, reason="Xid 79", **row)  # type: ignore[arg-type]  # a test's short hand
    opened.execute(update(Quarantine).values(began_at=began_at, ended_at=ended_at))


@pytest.mark.parametrize(
    ("began", "ended", "counts"),
    [(-2, -1, True), (-2, None, False), (-2, 0.25, False), (0.25, None, False), (1, None, True)],
)
def test_a_run_counts_unless_its_gpu_was_in_quarantine_meanwhile(
    db_session: Session, began: float, ended: float | None, counts: bool
) -> None:
    """Minutes from the start of a run of half a minute."""
    end = None if ended is None else RESULT.started_at + ended * MINUTE
    isolate(db_session, RESULT.started_at + began * MINUTE, end)
    assert illness_of_run(db_session, RESULT) == (None if counts else "Xid 79")


def test_another_gpu_in_quarantine_is_nothing_to_a_run(db_session: Session) -> None:
    isolate(db_session, RESULT.started_at - MINUTE, None, uuid="GPU-2")
    assert illness_of_run(db_session, RESULT) is None
    assert refuse_if_ill(db_session, RESULT.gpu_uuid) == 0


@pytest.mark.parametrize(
    ("kind", "reading"),
    [("xid", {"when": "after", "xids": [79]}), ("ecc", {"when": "after", "ecc_uncorrected": 2})],
)
def test_a_run_that_shows_an_illness_puts_its_gpu_into_quarantine(
    db_session: Session, kind: str, reading: dict[str, object]
) -> None:
    opened = db_session
    opened.execute(insert(GpuModel).values(slug="h200", name="H200", arch="sm_90"))
    ill: RunResult = replace(RESULT, telemetry=({"when": "before", "ecc_uncorrected": 0}, reading))
    assert illness_of_run(opened, ill)
    assert opened.scalars(select(Quarantine.kind)).all() == [kind]
    with pytest.raises(NotNow, match="is in quarantine since"):
        refuse_if_ill(opened, RESULT.gpu_uuid)


def test_a_canary_that_is_slower_than_those_of_its_own_gpu_is_an_illness(db_session: Session) -> None:
    run_id = one_commit.measure(db_session, one_commit.submit(db_session))
    readings = [{"canary_compute_us": 100.0}] * 5
    slow = replace(RESULT, telemetry=({"when": "before", "canary_compute_us": 120.0},))
    db_session.execute(update(Run).where(Run.id == run_id).values(gpu_uuid="GPU-2", telemetry=readings))
    assert illness_of_run(db_session, slow) is None
    db_session.execute(update(Run).where(Run.id == run_id).values(gpu_uuid=RESULT.gpu_uuid))
    db_session.execute(insert(GpuModel).values(slug="h200", name="H200", arch="sm_90"))
    assert illness_of_run(db_session, slow) == "its arithmetic canary takes 120.0 us, 20.0% over 100.0 us"
