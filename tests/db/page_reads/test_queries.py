"""Every read of the pages returns the right rows of a real database that has something of everything."""

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import small_database
from tests.dashboard.fixtures.small_database import (
    FIRST_DAY,
    KERNEL,
    MACHINE,
    OTHER_PROBLEM,
    PROBLEM,
    REPOSITORY,
    SHAS,
    SUBJECTS,
)
from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle import repositories as lifecycle
from tilewatch.db.models import OPEN_REGRESSION, Commit, Job, Measurement, Run, Submission, Sweep, Verdict
from tilewatch.db.page_reads import (
    evidence,
    queue,
    regressions,
    series,
    snapshots,
    static_facts,
    submissions,
    sweeps,
    verdicts,
)
from tilewatch.db.session import session


def test_status_turns_into_json_and_counts_every_state(filled: Session) -> None:
    status = queue.read_status(filled)
    data = json.loads(json.dumps(dataclasses.asdict(status), default=str))
    counts = {(row["kind"], row["state"]): row["jobs"] for row in data["jobs"]}
    assert counts[("compile", "running")] == 1
    assert counts[("measure", "waiting")] == 1
    assert [(row.subject, row.done_steps, row.total_steps, row.owner) for row in status.running] == [
        ("gemm_fp8 320x32576x7168 for sm_100, configs 19-36", 7, 18, "compile@node-1")
    ]
    assert [row.failure for row in status.failed] == ["OSError: [Errno 28] No space left on device"]
    assert [(row.gpu_model, row.state) for row in status.submissions] == [("b200", "compiling")]


def test_status_of_an_empty_database_is_empty(db_session: Session) -> None:
    assert queue.read_status(db_session) == queue.Status(
        jobs=(), running=(), put_off=(), failed=(), submissions=(), workers=(), environments=(), quarantines=()
    )


def test_what_is_taken_next_stands_first_however_many_jobs_there_are(db_session: Session) -> None:
    waits = one_commit.job(db_session, "waits", "waiting", priority=jobs.Priority.CONFIRM)
    first, second = (one_commit.job(db_session, key) for key in ("first", "second"))
    replay = one_commit.job(db_session, "replay", priority=jobs.Priority.CONFIRM)
    assert [row.id for row in queue.list_next_jobs(db_session)] == [replay, first, second, waits]
    assert [row.id for row in queue.list_next_jobs(db_session, limit=2)] == [replay, first]
    assert jobs.claim(db_session, second, "worker#1", 60.0).id == replay  # type: ignore[union-attr]


def test_a_job_that_was_put_off_is_in_the_status_however_many_are_newer(db_session: Session) -> None:
    put_off = one_commit.job(db_session, "put off")
    db_session.get_one(Job, put_off).trouble = "the disk is full"
    for number in range(101):
        one_commit.job(db_session, f"newer {number}")
    assert [row.id for row in queue.read_status(db_session).put_off] == [put_off]


def test_a_worker_that_went_silent_is_known_but_not_counted_on(filled: Session) -> None:
    alive = {row.name: row.alive for row in queue.list_workers(filled)}
    assert alive == {"compile@node-1": True, "judge@node-1": True, "gpu0@node-2": False}
    serving = {row.queue: row.workers for row in queue.list_queues(filled)}
    assert serving == {"compile": 1, "gpu.b200": 0, "gpu.h200": 0}


def test_every_submission_has_the_state_of_its_work(filled: Session) -> None:
    states = {(row.gpu_model, row.reason, row.sha): row.state for row in submissions.list_submissions(filled)}
    assert states[("b200", "nightly", SHAS[2])] == "compiling"
    assert states[("b200", "nightly", SHAS[1])] == "static facts only"
    assert states[("b200", "manual", SHAS[2])] == "cancelled"
    assert states[("h200", "nightly", SHAS[2])] == "measured"
    assert not [reason for _, reason, _ in states if reason == "recorded"], "an import of many would be all"


def test_a_submission_counts_the_configs_that_no_longer_wait(filled: Session) -> None:
    compiling = next(row for row in submissions.list_submissions(filled) if row.state == "compiling")
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
    row = SimpleNamespace(**{"reason": "nightly", "measure": True, **calm, **known})
    assert submissions._describe_state(row) == state


def test_a_series_stands_at_its_newest_commit_up_to_a_moment(filled: Session) -> None:
    after_two = FIRST_DAY + dt.timedelta(days=1, hours=1)
    rows = {(row.problem, row.origin): row for row in snapshots.list_points_as_of(filled, REPOSITORY, after_two)}
    assert rows[(PROBLEM, "measured")].sha == SHAS[1]
    assert rows[(PROBLEM, "measured")].ratio == pytest.approx(118 / (134 * 0.97))
    assert rows[(PROBLEM, "measured")].baseline_version == "0.1.0"
    assert (rows[(PROBLEM, "recorded")].sha, rows[(PROBLEM, "recorded")].machine) == (SHAS[1], MACHINE)
    assert rows[(OTHER_PROBLEM, "measured")].sha == SHAS[2], "younger than the moment: as it began"


def test_a_commit_stands_with_what_it_measured_itself(filled: Session) -> None:
    assert {(row.problem, row.origin) for row in snapshots.list_points_at_commit(filled, REPOSITORY, SHAS[0])} == {
        (PROBLEM, "measured"),
        (PROBLEM, "recorded"),
    }
    assert [row.sha for row in snapshots.list_commits(filled, REPOSITORY)] == list(reversed(SHAS))


def test_changes_that_were_judged_since_a_moment(filled: Session) -> None:
    found = snapshots.list_judged_changes(filled, REPOSITORY, FIRST_DAY)
    assert [(row.sha, row.verdict, row.change) for row in found] == [
        (SHAS[2], "regression", 0.093),
        (SHAS[1], "undecided", None),
        (SHAS[0], "undecided", None),
    ], "all but the unchanged"
    assert snapshots.list_judged_changes(filled, REPOSITORY, FIRST_DAY + dt.timedelta(days=5)) == []


def test_the_newest_nightly_of_each_gpu_model(filled: Session) -> None:
    assert {(row.gpu_model, row.sha, row.state) for row in submissions.list_last_nights(filled)} == {
        ("b200", SHAS[2], "compiling"),
        ("h200", SHAS[2], "measured"),
    }


@pytest.fixture
def changeable(new_filled_database: NewDatabase) -> Iterator[Session]:
    """A database with something of everything, for one test alone."""
    with new_filled_database() as url, session(url) as opened:
        yield opened


def test_a_commit_keeps_its_static_facts_while_a_second_sweep_of_it_waits(changeable: Session) -> None:
    of = (changeable, REPOSITORY, KERNEL, PROBLEM, "b200")
    before = static_facts.list_static_facts(*of)
    commit = changeable.query(Commit).filter_by(sha=SHAS[1]).one()
    small_database._sweep(changeable, commit, "b200", "manual", (64, 128, 256))
    assert static_facts.list_static_facts(*of) == before
    assert SHAS[1] in {row.sha for row in before}


def test_the_static_facts_of_a_removed_commit_are_the_first_beyond_the_limit(changeable: Session) -> None:
    def list_shas(limit: int) -> list[str]:
        return [
            row.sha for row in static_facts.list_static_facts(changeable, REPOSITORY, KERNEL, PROBLEM, "h200", limit)
        ]

    changeable.execute(update(Commit).where(Commit.sha == SHAS[2]).values(left_branch_at=FIRST_DAY))
    assert list_shas(2) == list(SHAS[:2])
    assert list_shas(3) == list(SHAS), "sorted by position"


def test_a_series_stands_at_a_commit_of_a_stack_with_one_date(changeable: Session) -> None:
    """A rebase gives all commits of a stack one date, here that of the first, so the date alone names the last one."""
    changeable.execute(update(Commit).values(committed_at=FIRST_DAY))
    for sha in SHAS:
        rows = snapshots.list_points_as_of(changeable, REPOSITORY, FIRST_DAY, sha)
        assert next(row.sha for row in rows if (row.problem, row.origin) == (PROBLEM, "measured")) == sha


def test_the_last_night_of_a_removed_repository_is_not_waited_for(changeable: Session) -> None:
    lifecycle.add(changeable, REPOSITORY, "https://example.org/k.git", "main", False)
    assert submissions.list_last_nights(changeable)
    lifecycle.remove(changeable, REPOSITORY)
    assert submissions.list_last_nights(changeable) == []


def test_a_submission_with_an_open_job_is_listed_however_many_are_newer(changeable: Session) -> None:
    (before,) = queue.read_status(changeable).submissions
    changeable.get_one(Job, one_commit.job(changeable, "left")).submission_id = before.id
    assert before.id in {row.id for row in submissions.list_submissions(changeable, limit=0)}


def test_recordings_that_are_judged_stand_below_what_was_submitted(changeable: Session) -> None:
    """An import of 100 recordings filled the first page of the table while a first nightly ran."""
    recorded = changeable.query(Submission).filter_by(reason="recorded").first()
    assert recorded is not None
    recorded.requested_at = FIRST_DAY + dt.timedelta(days=1000)
    changeable.get_one(Job, one_commit.job(changeable, "judged")).submission_id = recorded.id
    listed = [row.reason == "recorded" for row in submissions.list_submissions(changeable)]
    assert listed == sorted(listed)
    assert {False, True} == set(listed)


def test_an_open_regression_is_listed_however_many_have_ended(filled: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left the inbox, the digest and every list, and its own page said that it was not there."""
    everything = regressions.list_regressions(filled)
    still_open = [row.id for row in everything if row.state in OPEN_REGRESSION]
    assert 0 < len(still_open) < len(everything)
    monkeypatch.setattr(regressions, "MOST_ENDED", 0)
    assert [row.id for row in regressions.list_regressions(filled)] == still_open
    assert len(regressions.list_regressions(filled, limit=1)) == 1


def test_a_run_is_held_against_the_commit_before_on_the_same_machine(filled: Session) -> None:
    points = [row for row in series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200") if row.role == "kernel"]
    of = {(row.sha, row.origin): row.run_id for row in points}
    assert evidence.find_run_before(filled, of[(SHAS[2], "measured")]) == of[(SHAS[1], "measured")]
    assert evidence.find_run_before(filled, of[(SHAS[1], "recorded")]) == of[(SHAS[0], "recorded")]
    assert evidence.find_run_before(filled, of[(SHAS[0], "measured")]) is None


def test_a_run_has_its_samples_its_cubin_and_its_commits(filled: Session) -> None:
    run_id = regressions.list_series(filled, 1)[0].run_id
    run = evidence.find_run(filled, run_id)
    assert run is not None
    assert (run.sha, run.verdict) == (SHAS[2], "regression")
    sampled = evidence.list_samples(filled, run_id)
    assert [row.role for row in sampled] == ["kernel", "baseline", "baseline"]
    assert sampled[0].config_id is not None
    cubin = evidence.find_cubin(filled, run.sweep_id, sampled[0].config_id)
    assert cubin is not None
    assert (cubin.compile_status, len(cubin.remarks or [])) == ("ok", 2)
    between = evidence.list_commits_between(filled, run.repository, run.position - 2, run.position)
    assert [line.sha for line in between] == [SHAS[2], SHAS[1]]
    assert evidence.find_run(filled, 10**9) is None


def test_points_come_in_commit_order_with_their_baselines(filled: Session) -> None:
    points = series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200")
    measured = [point for point in points if point.origin == "measured"]
    assert [point.subject for point in measured if point.role == "kernel"] == list(SUBJECTS)
    assert {point.implementation for point in measured} == {KERNEL, "deepgemm", "cublaslt"}
    assert {point.machine for point in points if point.origin == "recorded"} == {MACHINE}


def test_points_without_static_facts_are_the_same_points(filled: Session) -> None:
    whole = series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200")
    assert any(point.registers is not None for point in whole)
    nothing = dict.fromkeys(("registers", "stack_bytes", "shared_bytes", "code_bytes", "compile_s"))
    without = series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200", static_facts=False)
    assert without == [dataclasses.replace(point, **nothing) for point in whole]


def test_a_baseline_without_samples_is_no_point(filled: Session) -> None:
    missing = filled.query(Run).filter_by(origin="recorded").first()
    assert missing is not None
    before = len(series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200"))
    nothing = {"median_us": 0.0, "low_us": 0.0, "high_us": 0.0, "samples_us": []}
    detail = {"missing": "needs torch"}
    filled.add(Measurement(run_id=missing.id, implementation="triton", role="baseline", detail=detail, **nothing))
    filled.flush()
    assert len(series.list_points(filled, REPOSITORY, KERNEL, PROBLEM, "h200")) == before
    assert "triton" in {row.implementation for row in sweeps.list_measurements(filled, missing.sweep_id)}
    filled.rollback()


def test_trials_of_a_sweep_come_fastest_first_with_their_static_facts(filled: Session) -> None:
    sweep = sweeps.list_sweeps(filled, REPOSITORY, KERNEL, PROBLEM, "h200")[0]
    trials = sweeps.list_trials(filled, sweep.id)
    assert len(trials) == sweep.space_size == 54
    timed = [trial.median_us for trial in trials if trial.median_us is not None]
    assert timed == sorted(timed)
    assert trials[0].median_us == timed[0]
    assert trials[0].registers is not None
    remarks = sweeps.read_remarks(filled, sweep.id, trials[0].config_id)
    assert [remark["text"] for remark in remarks] == ["lowered to TMA", "uses WGMMA"]
    assert {trial.compile_status for trial in trials} == {"ok", "timeout", "error"}


def test_series_are_those_with_runs(filled: Session) -> None:
    found = [(row.problem, row.gpu_model) for row in series.list_series(filled)]
    assert found == [(PROBLEM, "h200"), (OTHER_PROBLEM, "h200")]


def test_names_that_are_known_only_apart_are_refused(changeable: Session) -> None:
    """The kernel and the problem are of two repositories: a program got an empty list, as if nothing was measured."""
    one_commit.submit(changeable, repository="ours")
    changeable.execute(update(Sweep).where(Sweep.repository == "ours").values(kernel="ours_fp8", problem="64x128"))
    series.require_known(changeable, repository="ours", kernel="ours_fp8", problem="64x128", gpu_model="b200")
    refusal = "no sweep of ours ours_fp8 has the problem '320x32576x7168'; the nearest is '64x128'"
    with pytest.raises(series.UnknownName, match=refusal):
        series.require_known(changeable, repository="ours", kernel="ours_fp8", problem=PROBLEM)
    with pytest.raises(series.UnknownName, match="no sweep of gemm_fp8 has the problem '64x128'"):
        series.require_known(changeable, kernel=KERNEL, gpu_model=None, problem="64x128")


def test_search_spaces_are_those_that_were_submitted(filled: Session) -> None:
    found = [(row.arch, row.problem) for row in static_facts.list_spaces(filled)]
    assert found == [("sm_100", PROBLEM), ("sm_100", OTHER_PROBLEM), ("sm_90", PROBLEM), ("sm_90", OTHER_PROBLEM)]


def test_undecided_series_are_those_whose_newest_run_asks_for_somebody(filled: Session) -> None:
    """Not those that coming nights decide, that were recorded elsewhere, or that a later run decided."""
    ever = FIRST_DAY - dt.timedelta(days=1)
    assert verdicts.list_undecided(filled, ever) == [], "the newest run is a regression"
    run_id = regressions.list_series(filled, 1)[0].run_id
    verdict = filled.get_one(Verdict, run_id)
    verdict.verdict, verdict.reason = "undecided", "not sure enough: 8 launches"
    filled.flush()
    (found,) = verdicts.list_undecided(filled, ever)
    assert (found.run_id, found.sha, found.reason) == (run_id, SHAS[2], "not sure enough: 8 launches")
    assert verdicts.list_undecided(filled, dt.datetime.now(dt.UTC) + dt.timedelta(days=1)) == []
    for waits in (
        "3 of the 5 earlier nights needed on this machine and toolchain",
        "looks like a change, which no replay has confirmed; a replay is asked for",
        "looks like a change, but tonight's replay launches are spent; it is asked again",
    ):
        verdict.reason = waits
        filled.flush()
        assert verdicts.list_undecided(filled, ever) == []
    filled.rollback()
