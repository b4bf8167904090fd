"""What is written of a run, and what its certificate says of the configs outside the short list."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import run_result
from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job, Measurement, Run, Sweep, Trial
from tilewatch.db.worker_reads import tried_configs
from tilewatch.db.worker_reads.tried_configs import TriedState
from tilewatch.kernels.results import TrialResult
from tilewatch.worker.detection.certificate import bound_chance
from tilewatch.worker.gpu import quarantine
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps import spool, write_run
from tilewatch.worker.steps.spool import Spooled
from tilewatch.worker.steps.write_run import certify

IDS = {config_sha256({"width": width}): width for width in (64, 128, 256)}
DAY = f"{run_result.result().finished_at:%Y-%m-%d}"
BEFORE = {"first_run": 3, "full_look": "2026-10-01", "ahead": 0.02}


@pytest.mark.parametrize(
    ("rest", "tried", "tried_of_space", "untried", "full_look"),
    [(10, 4, 6, 6, None), (10, 9, 11, 1, None), (10, 10, 12, 0, DAY), (10, 12, 12, 0, DAY), (10, 0, 2, 10, None)],
)
def test_a_certificate_counts_the_short_list_as_tried_and_dates_the_first_full_look(
    db_session: Session, rest: int, tried: int, tried_of_space: int, untried: int, full_look: str | None
) -> None:
    """Configs that were tried and have left the space count no more."""
    sweep_id = one_commit.submit(db_session).sweep_id
    state = TriedState(None, [128, 256], rest, tried)
    made = certify(db_session, sweep_id, 7, state, run_result.result(), IDS)
    assert (made.space, made.tried, made.untried) == (rest + 2, tried_of_space, untried)
    assert (made.first_run, made.full_look, made.looks) == (7, full_look, 0)
    assert made.chance_1 == made.chance_3 == untried / rest, "no full look says otherwise"
    again = certify(db_session, sweep_id, 8, replace(state, certificate=BEFORE), run_result.result(), IDS)
    assert (again.first_run, again.full_look) == (3, "2026-10-01" if untried == 0 else None)


@pytest.mark.parametrize(
    ("certificate", "listed", "ahead"),
    [
        (None, [128], 0.0),  # the winner is of the list
        (None, [256], 0.01478),  # 100 us beat 101.5 us
        ({**BEFORE, "ahead": 0.01}, [256], 0.01478),
        (BEFORE, [256], 0.02),
        (None, [64], 0.0),  # no config of the list has a time
    ],
)
def test_a_certificate_keeps_the_largest_lead_over_the_short_list(
    db_session: Session, certificate: dict[str, Any] | None, listed: list[int], ahead: float
) -> None:
    sweep_id = one_commit.submit(db_session).sweep_id
    made = certify(db_session, sweep_id, 7, TriedState(certificate, listed, 10, 5), run_result.result(), IDS)
    assert made.ahead == ahead
    assert made.ahead_before == (certificate or {"ahead": 0.0})["ahead"]


@pytest.mark.parametrize("looks", [[], [0.0, 0.02], [*[0.0] * 10, 0.008, 0.015, 0.02, 0.05]])
@pytest.mark.parametrize(("listed", "ahead"), [(128, 0.0), (256, 0.02)])
def test_a_certificate_bounds_the_chance_of_one_and_of_three_per_cent(
    db_session: Session, monkeypatch: pytest.MonkeyPatch, looks: list[float], listed: int, ahead: float
) -> None:
    sweep_id = one_commit.submit(db_session).sweep_id
    wanted: list[dict[str, Any]] = []
    monkeypatch.setattr(tried_configs, "list_full_looks", lambda _, facts: wanted.append(facts) or looks)
    state = TriedState({**BEFORE, "ahead": ahead}, [listed], 10, 6)
    made = certify(db_session, sweep_id, 7, state, run_result.result(), IDS)
    assert (made.looks, made.ahead) == (len(looks), ahead)
    assert made.chance_1 == bound_chance(0.01, 0.4, ahead, looks)
    assert made.chance_3 == bound_chance(0.03, 0.4, ahead, looks)
    assert [each["kernel"] for each in wanted] == ["gemm_fp8"]


@dataclass(frozen=True)
class Delivery:
    """A compiled sweep on record, with its measure job, and a run of it."""

    spooled: Spooled
    sweep_id: int
    ids: dict[str, int]


@pytest.fixture
def delivery(db_session: Session) -> Delivery:
    one_commit.submit(db_session, "an earlier night")
    planned = one_commit.submit(db_session)
    rows = [one_commit.compiled(key) for key in planned.code_keys[:3]]
    fact_writes.add_compilations(db_session, rows)
    fact_writes.attach_compilations(
        db_session, compiler=one_commit.COMPILER, submission_id=planned.submission_id, code_keys=planned.code_keys[:3]
    )
    job_id, _ = jobs.add(
        db_session, key="measure 1", kind="measure", queue="gpu.b200", subject="s", payload={},
        sweep_id=planned.sweep_id, submission_id=planned.submission_id, priority=jobs.Priority.MANUAL,
    )  # fmt: skip
    db_session.commit()
    first, second, third, _ = one_commit.CONFIGS
    made = run_result.result()
    trials = tuple(
        replace(each, config=config) for each, config in zip(made.trials, (third, first, second), strict=True)
    )
    ours, *theirs = made.measurements
    result = replace(
        made, winner=first, tie=(second,), trials=trials, measurements=(replace(ours, config=first), *theirs)
    )
    ids = {config_sha256(config): each for config, each in zip(one_commit.CONFIGS, planned.config_ids, strict=True)}
    return Delivery(Spooled(job_id, "measure 1", result), planned.sweep_id, ids)


@pytest.mark.parametrize(("timer", "origin"), [("cupti", "measured"), ("simulated", "simulated")])
def test_a_run_is_written_with_its_trials_and_measurements(
    db_session: Session, delivery: Delivery, timer: Any, origin: str
) -> None:
    result = replace(delivery.spooled.result, timer=timer)
    run_id = write_run.write(db_session, delivery.sweep_id, result, delivery.ids)
    run = db_session.get_one(Run, run_id)
    first, second, third, fourth = delivery.ids.values()
    assert (run.key, run.origin, run.tie, run.sweep_gpu_s) == (result.key, origin, [second], 3.5)
    assert (run.host, run.gpu_uuid, run.timer) == ("n1", "GPU-1", timer)
    assert (run.started_at, run.finished_at) == (result.started_at, result.finished_at)
    found = {each.implementation: each for each in db_session.scalars(select(Measurement))}
    assert {name: each.config_id for name, each in found.items()} == {"double": first, "deepgemm": None}
    assert found["double"].detail.keys() >= {"rounds", "missing"}
    of_sweep = select(Trial).where(Trial.sweep_id == delivery.sweep_id)
    trials = {each.config_id: each for each in db_session.scalars(of_sweep)}
    assert {config_id: each.status for config_id, each in trials.items()} == {
        first: "timed", second: "timed", third: "wrong", fourth: "waiting",
    }  # fmt: skip
    wrong, timed = trials[third], trials[first]
    assert (wrong.samples_us, wrong.median_us, wrong.error, wrong.failure) == (None, None, 0.5, "largest error 0.5")
    assert (timed.samples_us, timed.median_us, timed.error, timed.failure) == ([100.0, 100.2, 99.9], 100.0, 1e-7, None)


def test_a_run_of_a_space_with_a_short_list_has_a_certificate(db_session: Session, delivery: Delivery) -> None:
    space = {"listed": list(delivery.ids.values())[:2], "rest": 5}
    db_session.execute(update(Sweep).where(Sweep.id == delivery.sweep_id).values(space=space))
    run_id = write_run.write(db_session, delivery.sweep_id, delivery.spooled.result, delivery.ids)
    assert run_id != delivery.sweep_id
    details = db_session.execute(select(Measurement.role, Measurement.detail)).all()
    (certificate,) = [detail["certificate"] for role, detail in details if role == "kernel"]
    assert (certificate["first_run"], certificate["space"], certificate["untried"]) == (run_id, 7, 4)
    assert ["certificate" in detail for role, detail in details if role == "baseline"] == [False]


def count_runs(session: Session) -> int:
    return len(session.scalars(select(Run.id)).all())


def test_a_delivered_run_leaves_the_spool_and_queues_its_judge_once(
    db_session: Session, database_url: str, delivery: Delivery, tmp_path: Path
) -> None:
    (judge,) = write_run.deliver(delivery.spooled, tmp_path / "spool", database_url)
    assert list((tmp_path / "spool").iterdir()) == []
    assert write_run.deliver(delivery.spooled, tmp_path / "spool", database_url) == [judge]
    job = db_session.get_one(Job, judge.id)
    assert (job.kind, job.priority, judge.queue, count_runs(db_session)) == ("judge", jobs.Priority.MANUAL, "judge", 1)


def test_a_run_of_an_ill_gpu_is_measured_again(
    db_session: Session, database_url: str, delivery: Delivery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(quarantine, "illness_of_run", lambda _, run: seen.append(run) or "clocks of 900 MHz")
    with pytest.raises(NotNow, match="GPU GPU-1 fell ill in this sweep: clocks of 900 MHz"):
        write_run.deliver(delivery.spooled, tmp_path, database_url)
    assert (list(tmp_path.iterdir()), seen, count_runs(db_session)) == ([], [delivery.spooled.result], 0)
    spool.keep(tmp_path, delivery.spooled)
    assert write_run.deliver_spooled(tmp_path, database_url) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"job_key": "of another database"}, {"job_id": 4711}])
def test_a_run_of_no_job_of_this_database_is_refused(
    db_session: Session, delivery: Delivery, change: dict[str, Any]
) -> None:
    with pytest.raises(write_run.NotOurs, match=r"^job \d+ \(.*\) is not in this database$"):
        write_run.write_spooled(db_session, replace(delivery.spooled, **change))


def test_of_several_runs_in_the_spool_each_is_delivered_or_put_aside(
    db_session: Session, database_url: str, delivery: Delivery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker of the machine delivers one between the listing and the reading."""
    unknown = replace(delivery.spooled.result, trials=(TrialResult({"tile_m": 7}, "wrong"),))
    other_job, other_config = replace(delivery.spooled, job_id=4711), replace(delivery.spooled, result=unknown)
    for name, each in (("a", other_job), ("b", other_config), ("c", delivery.spooled)):
        spool.keep(tmp_path, each).rename(tmp_path / f"{name}.json")
    listed = [tmp_path / "gone.json", *spool.list_waiting(tmp_path)]
    monkeypatch.setattr(spool, "list_waiting", lambda _: listed)
    (judge,) = write_run.deliver_spooled(tmp_path, database_url)
    assert db_session.get_one(Job, judge.id).kind == "judge"
    refused = [tmp_path / "a.refused", tmp_path / "b.refused"]
    assert spool.list_refused(tmp_path) == sorted(tmp_path.iterdir()) == refused
    assert count_runs(db_session) == 1


def test_trials_are_written_every_two_seconds_and_stay_while_postgres_is_away(
    db_session: Session, database_url: str, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    writer = write_run.TrialWriter(database_url, delivery.sweep_id, delivery.ids)
    trials = delivery.spooled.result.trials
    written = []
    for at, trial, url in (
        (101.9, trials[0], database_url),
        (102.0, trials[1], "postgresql+psycopg://nobody@127.0.0.1:1/none"),
        (103.9, trials[2], database_url),
        (104.0, trials[2], database_url),
    ):
        now[0], writer._database_url = at, url
        writer.add(trial)
        db_session.commit()
        written.append(len(db_session.scalars(select(Trial).where(Trial.status.in_(("timed", "wrong")))).all()))
    assert (written, writer.ended, writer._kept) == ([0, 0, 0, 3], 4, [])
