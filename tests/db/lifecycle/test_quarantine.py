"""The readings by which a GPU is judged to be ill are those of its own newest runs."""

import datetime as dt

import pytest
from sqlalchemy import func, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import Quarantine, Recording, Run
from tilewatch.db.page_reads import gpu_health


def test_readings_are_those_of_so_many_newest_runs_of_the_gpu(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = one_commit.submit(db_session)
    recording = Recording(sha256="f" * 64, file_name="r.jsonl.gz", machine="lab", recorded_at=NOON)
    db_session.add(recording)
    db_session.flush()
    for hour, gpu in enumerate("aaaaba"):
        run_id = one_commit.measure(db_session, planned, f"run {hour}")
        row = {"gpu_uuid": gpu, "telemetry": [{"hour": hour}, {"hour": hour + 0.5}]}
        row |= {"origin": "recorded", "recording_id": recording.id} if hour == 1 else {}
        at = {"started_at": NOON - dt.timedelta(hours=hour), "finished_at": NOON}
        db_session.execute(update(Run).where(Run.id == run_id).values(**row, **at))
    monkeypatch.setattr(quarantine, "CANARY_RUNS", 3)
    readings = quarantine.list_readings(db_session, "a")
    assert [each["hour"] for each in readings] == [0, 0.5, 2, 2.5, 3, 3.5], "the run of hour 1 was imported"
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


def test_a_quarantine_counts_its_canaries_until_a_clean_one_ends_it(db_session: Session) -> None:
    one_commit.submit(db_session)
    of = {"gpu_model": "b200", "host": "node-1", "kind": "xid", "reason": "it is ill", "evidence": {}}
    assert [quarantine.begin(db_session, gpu_uuid=gpu, **of) for gpu in ("a", "b", "a")] == [True, True, False]
    opened = quarantine.find_open(db_session, "a")
    assert opened is not None
    for canaries, clean in ((1, False), (2, True), (2, False)):
        quarantine.write_canary(db_session, opened.id, f"clean: {clean}", clean=clean)
        db_session.expire_all()
        ended = db_session.get_one(Quarantine, opened.id)
        assert (ended.canaries, ended.ended_at is not None) == (canaries, canaries == 2)
    assert ended.canary_said == "clean: True", "after its end nothing is stored"
    assert quarantine.find_open(db_session, "a") is None
    other = quarantine.find_open(db_session, "b")
    assert other is not None
    assert (other.canaries, other.kind, other.reason) == (0, "xid", "it is ill")
    assert quarantine.begin(db_session, gpu_uuid="a", **of), "it is ill again"
    assert [quarantine.count_quarantines(db_session, gpu) for gpu in ("a", "b", "c")] == [2, 1, 0]


@pytest.mark.parametrize(("canary_h", "waited_h"), [(None, 2), (1, 1)])
def test_a_quarantine_waits_since_its_last_canary_or_its_begin(
    db_session: Session, canary_h: int | None, waited_h: int
) -> None:
    """The time of a transaction stands still."""
    one_commit.submit(db_session)
    of = {"gpu_model": "b200", "host": "node-1", "kind": "xid", "reason": "it is ill", "evidence": {}}
    quarantine.begin(db_session, gpu_uuid="a", **of)
    began_at, canary_at = (None if each is None else func.now() - dt.timedelta(hours=each) for each in (2, canary_h))
    db_session.execute(update(Quarantine).values(began_at=began_at, canary_at=canary_at))
    found = quarantine.find_open(db_session, "a")
    assert found is not None
    assert found.waited_s == 3600.0 * waited_h


@pytest.mark.parametrize(
    ("started_h", "finished_h", "reason"),
    [
        (0, 9, None),
        (0, 10, "first"),
        (12, 13, "first"),
        (20, 21, "first"),
        (21, 22, None),
        (29, 30, "second"),
        (10, 40, "second"),
        (50, 60, "second"),
    ],
)
def test_the_newest_quarantine_that_overlaps_a_run_is_the_reason_against_the_run(
    db_session: Session, started_h: int, finished_h: int, reason: str | None
) -> None:
    """The first one lasts from hour 10 to hour 20, and the second one since hour 30."""
    one_commit.submit(db_session)
    for number, gpu, began_h, ended_h in (("first", "a", 10, 20), ("second", "a", 30, None), ("other", "b", 0, None)):
        of = {"gpu_model": "b200", "host": "node-1", "kind": "xid", "evidence": {}}
        quarantine.begin(db_session, gpu_uuid=gpu, reason=number, **of)
        times = {"began_at": began_h, "ended_at": ended_h}
        at = {name: None if hour is None else NOON + dt.timedelta(hours=hour) for name, hour in times.items()}
        db_session.execute(update(Quarantine).where(Quarantine.reason == number).values(**at))
    ends = (NOON + dt.timedelta(hours=each) for each in (started_h, finished_h))
    assert quarantine.find_reason_during(db_session, "a", *ends) == reason
