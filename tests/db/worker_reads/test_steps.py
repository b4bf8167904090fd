"""The queries of steps and workers see their own rows, and the first, last or newest of them."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import func
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, HOST, KERNEL, NOON, REPOSITORY, Rows
from tilewatch.db.models import RECORDED_HOST_END, GpuModel, Run, Sweep, Trial
from tilewatch.db.query_parts import WORKER_ALIVE_S
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.steps import CompiledConfig, LastSweep, SweepFacts, UnmeasuredCode

DAY, MOMENT = dt.timedelta(days=1), dt.timedelta(microseconds=1)
LISTED = {"axes": [["tile", [32, 64]]], "rest": 1}


@pytest.mark.parametrize(("late", "here"), [(MOMENT, [GPU]), (dt.timedelta(0), [])])
@pytest.mark.parametrize("by", ["worker", "run"])
def test_a_gpu_model_is_here_until_its_last_sign_of_life_is_too_old(
    db_session: Session, rows: Rows, late: dt.timedelta, here: list[str], by: str
) -> None:
    at = func.now() - steps.RETIRED_AFTER + late
    if by == "worker":
        rows.worker("gpu@a", seen_at=at)
    else:
        rows.measured(finished_at=at)
    rows.worker("compile@a", kind="compile", gpu_model=None)
    rows.measured(rows.night(gpu_model="b200"), origin="simulated", finished_at=func.now())
    assert steps.list_gpu_models_measured_here(db_session, lately=True) == here
    assert steps.list_gpu_models_measured_here(db_session) == [GPU]
    models = ["a100", "b200", "gb10", "gb300", "rtx6000", "thor"]
    for slug in reversed(models):
        db_session.merge(GpuModel(slug=slug, name=slug, arch="sm_100"))
        rows.worker(slug, gpu_model=slug)
    assert steps.list_gpu_models_measured_here(db_session) == sorted([GPU, *models])


def test_unmeasured_code_is_listed_once_in_the_order_of_the_space(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    configs = [rows.config(tile=tile) for tile in (16, 32, 64, 128, 256)]
    second, first = (rows.sweep(night, problem=str(number), id=number) for number in (90_001, 90_000))
    compiled = rows.compilation("a")
    rows.trial(second, configs[0], code_key="a")
    rows.trial(first, configs[3], status="compiled", compilation_id=compiled.id)
    for sweep, place in ((second, 1), (first, 4), (first, 2)):
        rows.trial(sweep, configs[place], code_key="z")
    rows.trial(second, configs[2], code_key="b")
    rows.trial(first, configs[1], 9.0, code_key="timed")
    rows.trial(rows.sweep(night, kernel="softmax"), configs[0], code_key="of another kernel")
    rows.trial(rows.sweep(), configs[0], code_key="of another night")
    found = steps.list_unmeasured(db_session, night.id, KERNEL)
    problems = (("z", "90000", 64), ("a", "90000", 128), ("b", "90001", 64))
    assert found == [UnmeasuredCode(key, problem, {"tile": tile}) for key, problem, tile in problems]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({}, "cubin of a"),
        ({"host": f"{HOST}{RECORDED_HOST_END}"}, "cubin of a"),
        ({"status": "error"}, None),
        ({"status": "timeout", "cpu_s": 15.0}, None),
        ({"status": "timeout", "cpu_s": 14.9}, ""),
        ({"status": "error", "host": f"{HOST}{RECORDED_HOST_END}"}, ""),
        ({"status": "error", "failure": "the compiling process died: killed"}, ""),
        ({"compiler": "another"}, ""),
        ({"code_key": "b"}, ""),
    ],
)
def test_code_is_compiled_again_after_failures_that_may_pass(
    db_session: Session, rows: Rows, columns: dict[str, Any], key: str | None
) -> None:
    rows.compilation(**{"code_key": "a", "cpu_s": 1.0, **columns})
    found = steps.read_compiled_keys(db_session, ["a", "c"], "tileiras 13.4", 15.0)
    assert found == ({} if key == "" else {"a": key})


def test_a_sweep_waits_for_the_compile_jobs_of_its_own_night(db_session: Session, rows: Rows) -> None:
    config = rows.config()
    nights = [rows.night() for _ in range(3)]
    for night, number in zip(nights, (90_003, 90_001, 90_002), strict=True):
        sweep = rows.sweep(night)
        rows.trial(sweep, config, code_key="shared by all nights")
        rows.job(id=number, state="waiting", submission_id=night.id, sweep_id=sweep.id)
    batch = {"kernel": KERNEL, "items": [{"code_key": "shared by all nights"}]}
    assert steps.list_ready_to_measure(db_session) == [90_001, 90_002, 90_003]
    rows.job(kind="compile", submission_id=nights[2].id, payload=batch)
    assert steps.list_ready_to_measure(db_session) == [90_001, 90_003]
    assert steps.list_ready_to_measure(db_session, nights[0].id) == [90_003]
    assert steps.list_ready_to_measure(db_session, nights[2].id) == []


@pytest.mark.parametrize(
    ("silent_s", "queues", "taken"),
    [
        (WORKER_ALIVE_S, ["wanted", "another"], True),
        (WORKER_ALIVE_S + 1, ["wanted"], False),
        (0, ["another"], False),
    ],
)
def test_a_queue_is_taken_by_a_worker_that_lives(
    db_session: Session, rows: Rows, silent_s: float, queues: list[str], taken: bool
) -> None:
    rows.worker("compile@a", queues=queues, seen_at=func.now() - dt.timedelta(seconds=silent_s))
    assert steps.is_taken(db_session, "wanted") == taken


def test_a_measure_job_reads_the_facts_of_its_own_sweep(db_session: Session, rows: Rows) -> None:
    rows.sweep()
    commit = rows.commit(repository="attention")
    sweep = rows.sweep(night := rows.night(commit, reason="backfill", gpu_model="b200"), problem="128")
    found = steps.read_sweep_facts(db_session, sweep.id)
    of_series = ("attention", KERNEL, "128", "b200")
    assert found == SweepFacts(*of_series, night.id, commit.sha, "sm_100", "backfill")


def _compiled(rows: Rows, sweep: Sweep, count: int, **columns: Any) -> list[int]:
    """Returns the ids of new configs with a cubin each. Their trials are added in the other order."""
    configs = [rows.config(tile=sweep.id + number) for number in range(count)]
    for config in reversed(configs):
        made = rows.compilation(f"code {sweep.id} {config.id}", **columns)
        status = "compiled" if made.status == "ok" else "not_compiled"
        rows.trial(sweep, config, status=status, compilation_id=made.id, failure=made.failure)
    return [each.id for each in configs]


def test_configs_outside_the_short_list_come_last(db_session: Session, rows: Rows) -> None:
    sweep, other = rows.sweep(), rows.sweep()
    drawn, *listed = _compiled(rows, sweep, 3)
    _compiled(rows, sweep, 1, status="error")
    _compiled(rows, other, 1)
    sweep.space = {**LISTED, "listed": listed}
    db_session.flush()
    found = steps.list_compiled_configs(db_session, sweep.id)
    assert [(each.config_id, each.drawn) for each in found] == [(listed[0], False), (listed[1], False), (drawn, True)]
    key = f"code {sweep.id} {listed[0]}"
    assert found[0] == CompiledConfig(listed[0], {"tile": sweep.id + 1}, f"cubin of {key}", KERNEL)


def test_the_uncompiled_configs_of_the_short_list_are_counted(db_session: Session, rows: Rows) -> None:
    sweep, configs = rows.sweep(), [rows.config() for _ in range(4)]
    sweep.space = {**LISTED, "listed": [each.id for each in configs[:3]]}
    db_session.flush()
    for config, us in zip(configs, (None, None, 9.0, None), strict=True):
        rows.trial(sweep, config, us)
    rows.trial(rows.sweep(), configs[0])
    assert steps.count_uncompiled(db_session, sweep.id) == 2


def test_the_first_compile_job_that_stopped_is_described(db_session: Session, rows: Rows) -> None:
    sweep = rows.sweep()
    facts = steps.read_sweep_facts(db_session, sweep.id)
    plain = {"kind": "compile", "state": "failed", "submission_id": sweep.submission_id, "payload": {"kernel": KERNEL}}
    for other in (
        {"kind": "measure"},
        {"state": "queued"},
        {"submission_id": None},
        {"payload": {"kernel": "softmax"}},
    ):
        rows.job(**{**plain, **other})
    assert steps.find_stopped_compile(db_session, facts) is None
    rows.job(**{**plain, "state": "cancelled", "id": 90_001})
    assert steps.find_stopped_compile(db_session, facts) == "compile job 90001 ended as cancelled"
    rows.job(**plain, id=90_000)
    assert steps.find_stopped_compile(db_session, facts) == "compile job 90000 ended as failed: it failed"


def test_the_first_config_that_did_not_compile_gives_its_failure(db_session: Session, rows: Rows) -> None:
    sweep, configs = rows.sweep(), [rows.config() for _ in range(3)]
    rows.trial(sweep, configs[0], status="wrong", failure="wrong")
    rows.trial(rows.sweep(), configs[0], status="not_compiled", failure="of another sweep")
    with pytest.raises(NoResultFound):
        steps.find_compile_failure(db_session, sweep.id)
    for number in (2, 1):
        rows.trial(sweep, configs[number], status="not_compiled", failure=f"failure {number}")
    assert steps.find_compile_failure(db_session, sweep.id) == "failure 1"


def test_each_compiler_of_a_sweep_s_cubins_is_listed_once(db_session: Session, rows: Rows) -> None:
    sweep = rows.sweep()
    _compiled(rows, sweep, 2, compiler="a")
    _compiled(rows, sweep, 1, compiler="b", status="error")
    _compiled(rows, rows.sweep(), 1, compiler="c")
    assert steps.list_compilers(db_session, sweep.id) == ["a"]


def test_the_newest_measurements_with_counters_are_listed_oldest_first(db_session: Session, rows: Rows) -> None:
    def count(number: int, *, finished_at: dt.datetime = NOON, role: str = "kernel", **columns: Any) -> None:
        run = rows.run(rows.sweep(**columns), finished_at=finished_at)
        rows.measure(run, role=role, detail={"launch": number})

    own = rows.sweep(id=90_000)
    for number in (2, 1, *range(3, steps.RUNS_WITH_COUNTERS + 2)):
        count(number, finished_at=NOON + number * DAY)
    count(101, kernel="softmax")
    count(102, problem="128")
    count(103, role="baseline")
    rows.measure(rows.run(rows.sweep(), finished_at=NOON + 99 * DAY))
    found = steps.list_counted(db_session, steps.read_sweep_facts(db_session, own.id))
    wanted = range(2, steps.RUNS_WITH_COUNTERS + 2)
    assert found == [({"launch": number}, NOON + number * DAY) for number in wanted]


def test_the_last_whole_sweep_of_a_series_is_found(db_session: Session, rows: Rows) -> None:
    def swept(day: int, *, status: str = "compiled", origin: str = "measured", **columns: Any) -> tuple[Run, list[int]]:
        sweep = rows.sweep(**columns)
        ids = _compiled(rows, sweep, 3)
        sweep.space = {**LISTED, "listed": ids[:2]}
        for trial_id in ids[:2]:
            trial = rows.opened.get_one(Trial, (sweep.id, trial_id))
            trial.status, trial.median_us = (status, 9.0 if status == "timed" else None)
        run = rows.run(sweep, origin, finished_at=NOON + day * DAY, tie=ids[:1])
        return run, ids

    own = rows.sweep()
    swept(1, status="timed")
    last, ids = swept(3, status="timed")
    beside = rows.config()
    rows.measure(last, config_id=ids[1])
    rows.measure(last, role="baseline", implementation="table", config_id=beside.id)
    rows.measure(last, role="baseline", implementation="deepgemm")
    rows.measure(rows.run(), role="baseline", implementation="table", config_id=rows.config().id)
    swept(2, status="timed")
    swept(4)  # left some of the list out
    swept(5, status="timed", origin="simulated")
    swept(6, status="timed", kernel="softmax")
    swept(6, status="timed", problem="128")
    tried = {config_id: f"cubin of code {last.sweep_id} {config_id}" for config_id in ids[:2]}
    wanted = LastSweep(NOON + 3 * DAY, {"driver": "580.65"}, tried, frozenset({*ids[:2], beside.id}))
    for since in (NOON + DAY, NOON + 3 * DAY):
        assert steps.find_last_sweep(db_session, own.id, since) == wanted
    assert steps.find_last_sweep(db_session, own.id, NOON + 3 * DAY + MOMENT) is None
    manual = rows.sweep(rows.night(reason="manual"))
    assert steps.find_last_sweep(db_session, manual.id, NOON) is None


def test_the_sweeps_that_a_night_measures_come_in_the_order_of_their_jobs(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    for number, problem in ((90_001, "128"), (90_000, "64")):
        sweep = rows.sweep(night, problem=problem)
        rows.job(id=number, submission_id=night.id, sweep_id=sweep.id, payload={"baselines": [problem]})
        rows.job(kind="compile", submission_id=night.id, sweep_id=sweep.id)
    rows.job(submission_id=rows.night().id, sweep_id=sweep.id)
    assert steps.list_measured_together(db_session, night.id) == [(KERNEL, each, [each]) for each in ("64", "128")]


@pytest.mark.parametrize(
    ("columns", "due"),
    [
        ({}, True),
        ({"not_before": NOON}, True),
        ({"not_before": func.now() + DAY}, False),
        ({"state": "waiting"}, False),
        ({"queue": "gpu.b200"}, False),
    ],
)
def test_a_queued_job_is_due_once_its_waiting_time_is_over(
    db_session: Session, rows: Rows, columns: dict[str, Any], due: bool
) -> None:
    rows.job(**columns)
    assert steps.is_any_due(db_session, ["compile", "gpu.h200"]) == due


def test_a_measure_job_is_found_by_its_id_and_key(db_session: Session, rows: Rows) -> None:
    sweep = rows.sweep()
    job = rows.job(key="wanted", sweep_id=sweep.id, priority=2)
    other = rows.job(key="compiles", kind="compile", sweep_id=sweep.id)
    assert steps.find_measure_job(db_session, job.id, "wanted") == steps.MeasureJob(sweep.id, 2)
    for number, key in ((job.id, "compiles"), (other.id, "wanted"), (other.id, "compiles")):
        assert steps.find_measure_job(db_session, number, key) is None


def test_the_first_run_of_a_sweep_that_was_not_imported_is_found(db_session: Session, rows: Rows) -> None:
    sweep = rows.sweep()
    rows.run(sweep, "recorded", id=90_000)
    rows.run()
    assert steps.find_run(db_session, sweep.id) is None
    for number in (90_003, 90_001, 90_002):
        rows.run(sweep, id=number)
    assert steps.find_run(db_session, sweep.id) == 90_001


def test_the_jobs_of_a_night_are_listed_by_state(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    for number, state in ((90_003, "queued"), (90_001, "failed"), (90_002, "waiting"), (90_000, "done")):
        rows.job(id=number, state=state, submission_id=night.id)
    rows.job(submission_id=rows.night().id)
    found = steps.list_jobs_in(db_session, night.id, ["queued", "waiting", "failed"])
    assert found == [90_001, 90_002, 90_003]


def test_the_open_jobs_of_a_repository_are_those_of_its_branches_too(db_session: Session, rows: Rows) -> None:
    wanted, others = "my_kernels", ("my_kernels2", "my-kernels")
    names = (wanted, *(name_of_branch(name, "fast") for name in (wanted, *others)))
    for name, number in zip(names, (90_003, 90_001, 90_004, 90_005), strict=True):
        night = rows.night(rows.commit(repository=name))
        rows.job(id=number, submission_id=night.id)
        rows.job(state="done", submission_id=night.id)
    rows.job(submission_id=rows.night().id)
    again = rows.night(rows.commit(repository=wanted))
    rows.job(id=90_002, state="running", submission_id=again.id)
    assert steps.list_open_jobs_of_repository(db_session, wanted) == [90_001, 90_002, 90_003]


def test_the_state_of_a_job_is_none_without_the_job(db_session: Session, rows: Rows) -> None:
    rows.job(state="queued")
    job = rows.job(state="done")
    assert steps.find_job_state(db_session, job.id) == "done"
    assert steps.find_job_state(db_session, job.id + 1) is None


def test_the_newest_nightlies_of_a_repository_are_found(db_session: Session, rows: Rows) -> None:
    assert steps.find_last_night(db_session, REPOSITORY) is None
    commits = [rows.commit(position, sha=str(position)) for position in (1, 2, 3)]
    for number, (place, night) in enumerate([(2, 4), (0, 3), (1, 1), (2, 2)]):
        rows.night(commits[place], night=NOON.date() + night * DAY, id=90_000 - number)
    rows.night(commits[0], night=NOON.date() + 9 * DAY, reason="backfill", id=90_009)
    rows.night(rows.commit(repository="attention"), night=NOON.date() + 9 * DAY, id=90_008)
    assert steps.find_last_night(db_session, REPOSITORY) == NOON.date() + 4 * DAY
    assert steps.list_nightly_shas(db_session, REPOSITORY, 9) == ["3", "1", "2"]
    assert steps.list_nightly_shas(db_session, REPOSITORY, 2) == ["3", "1"]


def test_the_subjects_that_a_worker_runs_begin_with_the_oldest(db_session: Session, rows: Rows) -> None:
    for subject, owner, hour in (("second", "gpu_0@a#1", 2), ("first", "gpu_0@a#2", 1), ("other", "gpux0@a#1", 0)):
        rows.job(subject=subject, state="running", owner=owner, started_at=NOON + hour * DAY)
    rows.job(subject="ended", state="done", started_at=NOON)
    assert steps.list_running_subjects(db_session, "gpu_0@a") == ["first", "second"]


def test_the_activity_of_a_worker_is_its_own(db_session: Session, rows: Rows) -> None:
    rows.worker("gpu@a", doing="a sweep")
    rows.worker("gpu@b")
    found = [steps.find_worker_activity(db_session, name) for name in ("gpu@a", "gpu@b", "gpu@c")]
    assert found == ["a sweep", None, None]
