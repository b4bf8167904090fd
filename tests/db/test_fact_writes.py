"""Facts are written once, however often a step runs; these tests also hold what may correct a fact."""

import dataclasses
import datetime as dt
import threading
import time
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes, session
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import (
    Base,
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Sweep,
    Trial,
    Verdict,
    Worker,
)
from tilewatch.db.worker_reads import steps

ELSEWHERE = {
    "actions",
    "alarms",
    "check_operators",
    "checks",
    "code_diffs",
    "marks",
    "messages",
    "pull_requests",
    "regression_events",
    "regression_series",
    "regressions",
    "replays",
    "repositories",
    "suspicions",
    "tokens",
    "toolchain_reports",
}
"""Tables that people write to, or that have tests of their own for what is written twice."""


def _everything(opened: Session) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table.name: sorted((tuple(row) for row in opened.execute(select(table))), key=repr)
        for table in Base.metadata.sorted_tables
    }


def _trials(opened: Session, planned: one_commit.Planned) -> list[Trial]:
    """In the order of planned.config_ids."""
    opened.expire_all()
    found = opened.scalars(select(Trial).where(Trial.sweep_id == planned.sweep_id))
    return sorted(found, key=lambda trial: planned.config_ids.index(trial.config_id))


def _whole_flow(opened: Session) -> None:
    planned = one_commit.submit(opened)
    fact_writes.add_compilations(opened, [one_commit.compiled(code) for code in planned.code_keys])
    fact_writes.attach_compilations(opened, compiler=one_commit.COMPILER, submission_id=planned.submission_id)
    one_commit.measure(opened, planned)
    one_commit.job(opened)
    fact_writes.add_recording(
        opened, sha256="ef" * 32, file_name="h200.jsonl.gz", machine="H200", recorded_at=one_commit.NOON
    )
    fact_writes.write_heartbeat(
        opened,
        name="gpu0@node-a",
        kind="gpu",
        host="node-a",
        gpu_model="b200",
        gpu_uuid="GPU-1",
        toolchain={},
        queues=["gpu.b200"],
    )
    quarantine.begin(
        opened, gpu_uuid="GPU-2", gpu_model="b200", host="node-a", kind="xid", reason="Xid 79", evidence={}
    )


def test_a_flow_that_runs_twice_leaves_the_same_rows(db_session: Session) -> None:
    _whole_flow(db_session)
    before = _everything(db_session)
    written = {name for name, rows in before.items() if rows}
    assert before.keys() - written <= ELSEWHERE, "the flow writes every table of a step"
    _whole_flow(db_session)
    assert _everything(db_session) == before


def test_a_commit_keeps_the_largest_position(db_session: Session) -> None:
    """A shallow clone counts too few commits; a full one corrects it, whichever comes first."""

    def seen(position: int) -> int:
        return fact_writes.add_commit(
            db_session, repository="r", sha="s", position=position, committed_at=one_commit.NOON, subject="Tile it"
        )

    assert seen(3) == seen(70) == seen(3)
    assert db_session.scalars(select(Commit.position)).one() == 70


def test_a_gpu_models_rates_are_corrected_but_never_forgotten(db_session: Session) -> None:
    for fp8_tflops in (4500.0, 4600.0, None):
        fact_writes.add_gpu_model(
            db_session, slug="b200", name="B200", arch="sm_100", fp8_tflops=fp8_tflops, bandwidth_gbps=None
        )
    assert db_session.scalars(select(GpuModel.fp8_tflops)).one() == 4600.0


def test_a_submission_says_whether_it_is_new(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    commit_id = db_session.scalars(select(Commit.id)).one()
    wanted = {"reason": "nightly", "night": None, "commit_id": commit_id, "gpu_model": "b200", "measure": True}
    again = fact_writes.add_submission(db_session, key="nightly/2026-11-20/b200", **wanted)
    assert again == (planned.submission_id, False)
    other, created = fact_writes.add_submission(db_session, key="nightly/2026-11-21/b200", **wanted)
    assert created
    assert other != planned.submission_id


def test_a_recording_is_known_by_its_content(db_session: Session) -> None:
    def imported(file_name: str) -> tuple[int, bool]:
        return fact_writes.add_recording(
            db_session, sha256="ef" * 32, file_name=file_name, machine="H200", recorded_at=one_commit.NOON
        )

    first, created = imported("h200.jsonl.gz")
    assert created
    assert imported("renamed.jsonl.gz") == (first, False)
    assert db_session.scalars(select(Recording.file_name)).one() == "h200.jsonl.gz"


def test_a_config_is_the_same_however_its_parameters_are_ordered(db_session: Session) -> None:
    found = fact_writes.add_configs(db_session, [{"tile_m": 64, "num_ctas": 1}, {"num_ctas": 1, "tile_m": 64}])
    assert len(found) == 1
    assert fact_writes.add_configs(db_session, []) == {}
    assert fact_writes.add_configs(db_session, [{"num_ctas": 1, "tile_m": 64}]) == found
    assert db_session.scalar(select(func.count()).select_from(Config)) == 1


def test_a_success_replaces_a_timeout_and_nothing_replaces_a_success(db_session: Session) -> None:
    def compile_again(status: str) -> Compilation:
        fact_writes.add_compilations(db_session, [one_commit.compiled("code", status=status)])
        db_session.expire_all()
        return db_session.scalars(select(Compilation)).one()

    assert compile_again("timeout").status == "timeout"
    assert compile_again("error").status == "timeout"
    better = compile_again("ok")
    assert (better.status, better.failure, better.registers) == ("ok", None, 128)
    assert compile_again("timeout").status == "ok"


def test_a_timeout_of_more_cpu_time_replaces_one_of_less(db_session: Session) -> None:
    for cpu_s in (1.25, 15.5, 3.0):
        fact_writes.add_compilations(db_session, [{**one_commit.compiled("code", status="timeout"), "cpu_s": cpu_s}])
    assert db_session.scalars(select(Compilation.cpu_s)).one() == 15.5


def test_compilations_reach_only_the_trials_of_the_codes_that_were_named(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    first, second, *_ = planned.code_keys
    fact_writes.add_compilations(db_session, [one_commit.compiled(code) for code in (first, second)])
    attached = fact_writes.attach_compilations(
        db_session, compiler=one_commit.COMPILER, submission_id=planned.submission_id, code_keys=[second]
    )
    assert attached == 1
    assert [trial.status for trial in _trials(db_session, planned)] == ["waiting", "compiled", "waiting", "waiting"]


def test_compilations_reach_the_trials_that_wait_for_their_code(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    first, second, third, fourth = planned.code_keys
    fact_writes.add_compilations(
        db_session,
        [
            one_commit.compiled(first),
            one_commit.compiled(second, status="timeout"),
            one_commit.compiled(third, compiler="an older compiler"),
        ],
    )
    assert (
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, submission_id=planned.submission_id)
        == 2
    )
    assert fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id]) == 0
    found = [(trial.status, trial.failure) for trial in _trials(db_session, planned)]
    assert found == [
        ("compiled", None),
        ("not_compiled", "timeout: gave up after 15 s"),
        ("waiting", None),
        ("waiting", None),
    ]
    assert [trial.code_key for trial in _trials(db_session, planned)] == [None, None, third, fourth]
    unmeasured = steps.list_unmeasured(db_session, planned.submission_id, "gemm_fp8")
    assert {each.code_key for each in unmeasured} == {first, third, fourth}


def test_compilations_are_attached_to_a_submission_or_a_sweep_and_not_to_both(db_session: Session) -> None:
    with pytest.raises(TypeError, match="a submission_id or sweep_ids"):
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER)
    with pytest.raises(TypeError, match="a submission_id or sweep_ids"):
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, submission_id=1, sweep_ids=[1])


def test_of_two_workers_that_finish_the_last_batches_one_sees_that_nothing_waits(database_url: str) -> None:
    """Neither sees the other's uncommitted rows; without turns both would leave starting the measurement to the other.

    The second worker is let go as soon as the database says that it waits for the first.
    """
    with session.session(database_url) as opened:
        planned = one_commit.submit(opened)
    waiting_after: list[int] = []

    def finish(opened: Session, code_keys: tuple[str, ...]) -> None:
        fact_writes.add_compilations(opened, [one_commit.compiled(code) for code in code_keys])
        fact_writes.attach_compilations(opened, compiler=one_commit.COMPILER, submission_id=planned.submission_id)
        waiting_after.append(sum(trial.status == "waiting" for trial in _trials(opened, planned)))

    def second() -> None:
        with session.session(database_url) as opened:
            finish(opened, planned.code_keys[2:])

    thread = threading.Thread(target=second)
    with session.session(database_url) as opened:
        finish(opened, planned.code_keys[:2])
        thread.start()
        _until_somebody_waits(database_url)
    thread.join()
    assert waiting_after == [2, 0]


def test_workers_that_write_the_same_rows_in_other_orders_do_not_block_each_other_for_good(database_url: str) -> None:
    codes = [f"code {number}" for number in range(300)]
    together = threading.Barrier(2)
    failures: list[Exception] = []

    def write(mine: list[str]) -> None:
        together.wait()
        try:
            with session.session(database_url) as opened:
                fact_writes.add_compilations(opened, [one_commit.compiled(code) for code in mine])
                fact_writes.add_configs(opened, [{"tile_m": int(code.split()[1])} for code in mine])
        except Exception as error:  # noqa: BLE001  whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=write, args=(mine,)) for mine in (codes, codes[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_result_is_never_replaced_by_less(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    one_commit.measure(db_session, planned)
    before = [(trial.status, trial.median_us) for trial in _trials(db_session, planned)]
    for status, failure in (("waiting", None), ("compiled", None), ("not_compiled", "timeout")):
        less = {"status": status, "samples_us": None, "median_us": None, "error": None, "failure": failure}
        fact_writes.write_trial_results(
            db_session, {planned.sweep_id: [{"config_id": config_id, **less} for config_id in planned.config_ids]}
        )
    assert [(trial.status, trial.median_us) for trial in _trials(db_session, planned)] == before


def test_a_result_that_is_there_already_is_not_written_again(db_session: Session) -> None:
    """A run brings the results that its sweep wrote while it went on: a second version of each row would need room."""
    planned = one_commit.submit(db_session)
    one_commit.measure(db_session, planned)
    trials = _trials(db_session, planned)
    columns = ("config_id", "status", "samples_us", "median_us", "error", "failure")
    rows = [{name: getattr(trial, name) for name in columns} for trial in trials]
    places = text("select config_id, ctid from trials where sweep_id = :sweep_id order by config_id")
    before = db_session.execute(places, {"sweep_id": planned.sweep_id}).all()
    rows[0] = {**rows[0], "error": 0.5}
    fact_writes.write_trial_results(db_session, {planned.sweep_id: rows})
    after = db_session.execute(places, {"sweep_id": planned.sweep_id}).all()
    assert [old.config_id for old, new in zip(before, after, strict=True) if old != new] == [rows[0]["config_id"]]


def test_a_sweep_that_runs_again_knows_better(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    one_commit.measure(db_session, planned)
    again = {"status": "hung", "samples_us": None, "median_us": None, "error": None, "failure": "no answer in 10 s"}
    fact_writes.write_trial_results(db_session, {planned.sweep_id: [{"config_id": planned.config_ids[0], **again}]})
    first, second, *_ = _trials(db_session, planned)
    assert (first.status, first.samples_us, first.failure) == ("hung", None, "no answer in 10 s")
    assert second.status == "timed"


def test_the_first_measurements_of_a_run_stay(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    kernel = db_session.scalars(select(Measurement).where(Measurement.role == "kernel")).one()
    columns = [column.name for column in Measurement.__table__.columns if column.name not in ("id", "run_id")]
    slower = {**{name: getattr(kernel, name) for name in columns}, "median_us": 99.0}
    fact_writes.add_measurements(db_session, {run_id: [slower]})
    db_session.expire_all()
    assert kernel.median_us == 9.05


def test_the_key_of_a_run_is_that_of_one_sweep(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    assert one_commit.measure(db_session, planned) == run_id
    columns = [column.name for column in Sweep.__table__.columns if column.name != "id"]
    sweep = db_session.get_one(Sweep, planned.sweep_id)
    other = Sweep(**{name: getattr(sweep, name) for name in columns} | {"problem": "8192"})
    db_session.add(other)
    db_session.flush()
    with pytest.raises(ValueError, match="the run 'run 1' is known already, and belongs to another sweep"):
        one_commit.measure(db_session, dataclasses.replace(planned, sweep_id=other.id))


def test_a_verdict_is_decided_once(db_session: Session) -> None:
    """ "undecided" waits for replays; what is decided stays, since people may have acted on it."""
    run_id = one_commit.measure(db_session, one_commit.submit(db_session))

    def judge(word: str) -> str:
        verdict = fact_writes.NewVerdict(
            run_id=run_id,
            verdict=word,
            change=0.1,
            noise=0.01,
            history_points=9,
            policy="1",
            reason="10 % slower",
            low=0.09,
            high=0.11,
        )
        fact_writes.write_verdicts(db_session, [verdict])
        db_session.expire_all()
        return db_session.scalars(select(Verdict.verdict)).one()

    assert [judge("regression"), judge("unchanged"), judge("undecided")] == ["regression"] * 3


def test_equal_toolchains_have_equal_fingerprints(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    one_commit.measure(db_session, planned, "run 1")
    one_commit.measure(db_session, planned, "run 2")
    first, second = db_session.scalars(select(Run.toolchain_sha256))
    assert first == second
    assert len(first) == 64


def test_a_queue_is_taken_only_by_a_worker_that_lives(db_session: Session) -> None:
    fact_writes.write_heartbeat(
        db_session, name="c@a", kind="compile", host="a", toolchain={}, queues=["compile", "record"]
    )
    assert steps.is_taken(db_session, "record")
    assert not steps.is_taken(db_session, "judge")
    db_session.execute(update(Worker).values(seen_at=func.now() - dt.timedelta(minutes=2)))
    assert not steps.is_taken(db_session, "record")


def test_a_worker_is_seen_until_it_says_good_bye(database_url: str) -> None:
    def seen(doing: str | None) -> Worker:
        with session.session(database_url) as opened:
            fact_writes.write_heartbeat(opened, name="compile@a", kind="compile", host="a", toolchain={}, doing=doing)
            return opened.scalars(select(Worker)).one()

    first, second = seen(None), seen("compiling gemm_fp8")
    assert second.doing == "compiling gemm_fp8"
    assert second.started_at == first.started_at
    assert second.seen_at > first.seen_at
    with session.session(database_url) as opened:
        fact_writes.remove_worker(opened, "compile@a")
        fact_writes.remove_worker(opened, "compile@a")
        assert opened.scalars(select(Worker)).all() == []


def _until_somebody_waits(url: str, patience_s: float = 120) -> None:
    waiting = text(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + patience_s
    while True:
        with session.session(url) as opened:
            if opened.execute(waiting).scalar_one():
                return
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.02)


@pytest.mark.parametrize(("count", "parts"), [(0, 0), (5, 1), (50, 5), (100, 8), (500, 8)])
def test_few_rows_are_written_in_few_transactions(count: int, parts: int) -> None:
    rows = list(range(count))
    split = fact_writes.in_parts(rows)
    assert len(split) == parts
    assert sorted(row for part in split for row in part) == rows
