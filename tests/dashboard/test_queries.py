"""The questions, asked of a real database that has something of everything."""

import dataclasses
import json

import pytest
from sqlalchemy.orm import Session

from db import queries
from db.models import Measurement, Run
from tests.dashboard.filled import KERNEL, MACHINE, OTHER_PROBLEM, PROBLEM, SHAS, SUBJECTS


def test_status_turns_into_json_and_counts_every_state(filled: Session) -> None:
    status = queries.status(filled)
    told = json.loads(json.dumps(dataclasses.asdict(status), default=str))
    counts = {(row["kind"], row["state"]): row["jobs"] for row in told["jobs"]}
    assert counts[("compile", "running")] == 1
    assert counts[("measure", "waiting")] == 1
    assert [(row.subject, row.done_steps, row.total_steps, row.owner) for row in status.running] == [
        ("gemm_fp8 320x32576x7168 for sm_100, configs 19-36", 7, 18, "compile@node-1")
    ]
    assert [row.failure for row in status.failed] == ["OSError: [Errno 28] No space left on device"]
    assert [(row.gpu_model, row.state) for row in status.submissions] == [("b200", "compiling")]


def test_status_of_an_empty_database_is_empty(db_session: Session) -> None:
    assert queries.status(db_session) == queries.Status(
        jobs=(), running=(), put_off=(), failed=(), submissions=(), workers=()
    )


def test_a_worker_that_went_silent_is_known_but_not_counted_on(filled: Session) -> None:
    alive = {row.name: row.alive for row in queries.workers(filled)}
    assert alive == {"compile@node-1": True, "judge@node-1": True, "gpu0@node-2": False}
    serving = {row.queue: row.workers for row in queries.queues(filled)}
    assert serving == {"compile": 1, "gpu.b200": 0, "gpu.h200": 0}


def test_every_submission_has_the_state_of_its_work(filled: Session) -> None:
    states = {(row.gpu_model, row.reason, row.sha): row.state for row in queries.submissions(filled)}
    assert states[("b200", "nightly", SHAS[2])] == "compiling"
    assert states[("b200", "nightly", SHAS[1])] == "static facts only"
    assert states[("b200", "manual", SHAS[2])] == "cancelled"
    assert states[("h200", "nightly", SHAS[2])] == "measured"
    assert states[("h200", "recorded", SHAS[0])] == "recorded"


def test_a_submission_counts_the_configs_that_no_longer_wait(filled: Session) -> None:
    compiling = next(row for row in queries.submissions(filled) if row.state == "compiling")
    assert (compiling.sweeps, compiling.trials, compiling.settled_trials) == (1, 54, 18)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({"open_compile_jobs": 1, "failed_jobs": 1}, "compiling"),
        ({"open_measure_jobs": 1}, "waiting for a GPU"),
        ({"open_measure_jobs": 1, "running_measure_jobs": 1}, "measuring"),
        ({"runs": 1, "open_judge_jobs": 1}, "judging"),
        ({"runs": 1, "failed_jobs": 1}, "failed"),
        ({"cancelled_jobs": 1}, "cancelled"),
        ({"settled_trials": 1}, "incomplete"),
        ({"runs": 1}, "measured"),
        ({}, "nothing measured"),
        ({"measure": False}, "static facts only"),
    ],
)
def test_the_state_of_a_submission_says_what_happens_next(known: dict[str, int], state: str) -> None:
    calm = {
        "runs": 0,
        "trials": 2,
        "settled_trials": 2,
        "failed_jobs": 0,
        "cancelled_jobs": 0,
        "open_compile_jobs": 0,
        "open_measure_jobs": 0,
        "running_measure_jobs": 0,
        "open_judge_jobs": 0,
    }
    assert queries.submission_state(reason="nightly", **{"measure": True, **calm, **known}) == state


def test_a_change_is_against_the_commit_before_on_the_same_machine(filled: Session) -> None:
    latest = {(row.problem, row.origin): row for row in queries.latest(filled)}
    measured, recorded = latest[(PROBLEM, "measured")], latest[(PROBLEM, "recorded")]
    assert (measured.sha, measured.previous_sha, measured.verdict) == (SHAS[2], SHAS[1], "regression")
    assert measured.ratio == pytest.approx(118 / (134 * 1.06))
    assert measured.previous_ratio == pytest.approx(118 / (134 * 0.97))
    assert (recorded.sha, recorded.previous_sha, recorded.machine) == (SHAS[1], SHAS[0], MACHINE)
    assert latest[(OTHER_PROBLEM, "measured")].previous_sha is None


def test_points_come_in_commit_order_with_their_baselines(filled: Session) -> None:
    points = queries.points(filled, KERNEL, PROBLEM, "h200")
    measured = [point for point in points if point.origin == "measured"]
    assert [point.subject for point in measured if point.role == "kernel"] == list(SUBJECTS)
    assert {point.implementation for point in measured} == {KERNEL, "deepgemm", "cublaslt"}
    assert {point.machine for point in points if point.origin == "recorded"} == {MACHINE}


def test_a_baseline_without_samples_is_no_point(filled: Session) -> None:
    missing = filled.query(Run).filter_by(origin="recorded").first()
    assert missing is not None
    before = len(queries.points(filled, KERNEL, PROBLEM, "h200"))
    nothing = {"median_us": 0.0, "low_us": 0.0, "high_us": 0.0, "samples_us": []}
    detail = {"missing": "needs torch"}
    filled.add(Measurement(run_id=missing.id, implementation="triton", role="baseline", detail=detail, **nothing))
    filled.flush()
    assert len(queries.points(filled, KERNEL, PROBLEM, "h200")) == before
    assert "triton" in {row.implementation for row in queries.measured(filled, missing.sweep_id)}
    filled.rollback()


def test_trials_of_a_sweep_come_fastest_first_with_their_static_facts(filled: Session) -> None:
    sweep = next(row for row in queries.sweeps(filled) if row.gpu_model == "h200" and row.problem == PROBLEM)
    trials = queries.trials(filled, sweep.id)
    assert len(trials) == sweep.space_size == 54
    timed = [trial.median_us for trial in trials if trial.median_us is not None]
    assert timed == sorted(timed)
    assert trials[0].median_us == timed[0]
    assert trials[0].registers is not None
    assert [remark["text"] for remark in queries.remarks(filled, trials[0].id)] == ["lowered to TMA", "uses WGMMA"]
    assert {trial.compile_status for trial in trials} == {"ok", "timeout", "error"}


def test_series_are_those_with_runs(filled: Session) -> None:
    found = [(row.problem, row.gpu_model, row.runs) for row in queries.series(filled)]
    assert found == [(PROBLEM, "h200", 5), (OTHER_PROBLEM, "h200", 1)]
