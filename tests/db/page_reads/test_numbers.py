"""Numbers that queries compute: ratios the right way round, units, and which GPU was ill when."""

import datetime as dt

import pytest
from sqlalchemy import literal, select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle import quarantine, regressions, waiting
from tilewatch.db.lifecycle.messages import list_unreported_changes
from tilewatch.db.models import Config, Measurement, Quarantine, Replay, Run, Sweep, Trial
from tilewatch.db.page_reads import gpu_health, series
from tilewatch.db.worker_reads import run_pairs, winners

MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def run_id(db_session: Session) -> int:
    return one_commit.measure(db_session, one_commit.submit(db_session))


def test_regret_is_how_much_slower_the_shipped_config_is_than_the_winner(db_session: Session, run_id: int) -> None:
    times = {"samples_us": [10.0], "median_us": 9.05 * 1.2, "low_us": 10.0, "high_us": 10.0}
    db_session.add(Measurement(run_id=run_id, implementation="tile_table", role="baseline", detail={}, **times))
    db_session.flush()
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert (pair.regret, pair.ships) == (pytest.approx(0.2), None)


def test_the_regret_is_of_what_the_library_ships_where_that_is_known(db_session: Session, run_id: int) -> None:
    config = db_session.scalars(select(Config).limit(1)).one()
    for name, config_id, times_slower in (("tile_table", None, 1.3), ("shipped", config.id, 1.2)):
        times = {"samples_us": [10.0], "median_us": 9.05 * times_slower, "low_us": 10.0, "high_us": 10.0}
        row = {"implementation": name, "role": "baseline", "config_id": config_id, "detail": {}, **times}
        db_session.add(Measurement(run_id=run_id, **row))
    db_session.flush()
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert (pair.regret, pair.ships) == (pytest.approx(0.2), config.params)


def test_the_table_s_regret_in_the_night_before_is_known_beside_the_newest(db_session: Session, run_id: int) -> None:
    times = {"samples_us": [10.0], "median_us": 9.05 * 1.05, "low_us": 10.0, "high_us": 10.0}
    db_session.add(Measurement(run_id=run_id, implementation="tile_table", role="baseline", detail={}, **times))
    db_session.flush()
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert pair.old_table_regret is None, "there is no night before"
    one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert pair.old_table_regret == pytest.approx(0.05)
    db_session.execute(update(Run).where(Run.id == run_id).values(origin="simulated", timer="simulated"))
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert pair.old_table_regret is None, "a GPU did not measure it, though its host has that name"


@pytest.mark.usefixtures("run_id")
def test_the_loss_of_the_last_winner_is_how_much_slower_than_the_new_one_it_is(db_session: Session) -> None:
    """The first config won in the night before; now the third wins, and the first takes 20 % more."""
    later = one_commit.submit(db_session, key="later")
    first, third = later.config_ids[0], later.config_ids[2]
    newer = one_commit.measure(db_session, later, key="run 2")
    db_session.execute(update(Run).where(Run.id == newer).values(tie=[third]))
    of_kernel = (Measurement.run_id == newer) & (Measurement.role == "kernel")
    db_session.execute(update(Measurement).where(of_kernel).values(config_id=third))
    for config_id, median_us in ((first, 12.0), (third, 10.0)):
        one = (Trial.sweep_id == later.sweep_id) & (Trial.config_id == config_id)
        db_session.execute(update(Trial).where(one).values(median_us=median_us))
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert pair.old_winner_loss == pytest.approx(0.2)
    db_session.execute(update(Run).where(Run.id == newer).values(tie=[first, third]))
    (pair,) = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - MINUTE)
    assert pair.old_winner_loss is None, "it is tied"


def test_the_baseline_s_time_is_ours_times_the_ratio(db_session: Session, run_id: int) -> None:
    facts = winners.read_run_facts(db_session, run_id)
    assert (facts.time_us, facts.baseline_us) == (9.05, pytest.approx(9.05 * 1.1))


def test_counters_of_a_replay_of_both_winners_take_the_place_of_each_run_s_own(
    db_session: Session, run_id: int
) -> None:
    code = winners.read_run_facts(db_session, run_id).code_sha256
    commit_id = db_session.scalars(select(Sweep.commit_id)).one()
    about = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200", "axis": "commit"}
    sides = {"good_commit_id": commit_id, "bad_commit_id": commit_id, "good_us": [9.0], "bad_us": [10.0]}
    rest = {**about, **sides, "bad_code_sha256": code, "gpu_s": 1.0, "origin": "measured"}
    counted = [{"good": {"instructions": each}, "bad": {"instructions": 2 * each}} for each in (1.0, 5.0)]
    for number, (good_code, counters) in enumerate([(code, counted[0]), (code, {"missing": "why"}), ("x", counted[1])]):
        db_session.add(Replay(key=f"replay {number}", good_code_sha256=good_code, counters=counters, **rest))
    db_session.flush()
    good, bad = winners.read_pair_facts(db_session, run_id, run_id)
    assert (good.counters, bad.counters) == ({"instructions": 1.0}, {"instructions": 2.0})


def test_a_pair_without_a_profiled_replay_keeps_the_counters_of_the_runs(db_session: Session, run_id: int) -> None:
    counters = {"instructions": 3.0}
    of_kernel = (Measurement.run_id == run_id) & (Measurement.role == "kernel")
    db_session.execute(update(Measurement).where(of_kernel).values(detail={"counters": counters}))
    assert [each.counters for each in winners.read_pair_facts(db_session, run_id, run_id)] == [counters] * 2


def test_canaries_of_computing_and_of_memory_are_not_each_other(db_session: Session, run_id: int) -> None:
    reading = {"when": "canary before", "canary_compute_us": 220.0, "canary_memory_us": 135.0}
    db_session.execute(update(Run).where(Run.id == run_id).values(telemetry=[{"clock_mhz": 1}, reading]))
    (row,) = gpu_health.list_canaries(db_session)
    assert (row.compute_us, row.memory_us, row.gpu_uuid) == (220.0, 135.0, "GPU-1")


@pytest.mark.parametrize(
    ("began", "ended", "marked"),
    [(-2, -1, False), (-2, 0.25, True), (0.25, None, True), (-2, None, True), (1, None, False)],
)
def test_a_point_is_marked_where_its_gpu_was_in_quarantine_meanwhile(
    db_session: Session, run_id: int, began: float, ended: float | None, marked: bool
) -> None:
    """Minutes from the start of a run of half a minute."""
    run = db_session.get_one(Run, run_id)
    quarantine.begin(
        db_session, gpu_uuid=run.gpu_uuid, gpu_model="b200", host="n", kind="xid", reason="Xid 79", evidence={}
    )
    end = None if ended is None else run.started_at + ended * MINUTE
    db_session.execute(update(Quarantine).values(began_at=run.started_at + began * MINUTE, ended_at=end))
    points = series.list_points(db_session, "tilewatch", "gemm_fp8", "320x32576x7168", "b200")
    assert {point.quarantined for point in points} == {marked}


def test_waits_double_from_a_quarter_of_a_minute_to_ten_minutes(db_session: Session) -> None:
    waits = [db_session.scalar(select(waiting.backoff_s(literal(earlier)))) for earlier in (0, 1, 2, 5, 6, 99)]
    assert waits == [15.0, 30.0, 60.0, 480.0, 600.0, 600.0]


def test_a_regression_that_ended_by_itself_recovered_and_one_that_a_person_ended_is_resolved(
    db_session: Session, run_id: int
) -> None:
    number = one_commit.regress(db_session, run_id)
    regressions.triage(db_session, number, "resolve", regressions.ITSELF)
    regressions.triage(db_session, number, "reopen", "ada")
    regressions.triage(db_session, number, "resolve", "ada")
    kinds = [change.kind for change in list_unreported_changes(db_session)]
    assert kinds == ["opened", "recovered", "reopened", "resolved"]
