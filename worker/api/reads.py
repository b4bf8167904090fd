"""Defines the operations that read. Callers read the docstrings of these functions, so write them for a stranger."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy.orm import Session

from tilewatch.db.page_reads import actions, checks, evidence, regressions, replays, series, sweeps, verdicts
from tilewatch.db.page_reads.actions import ActionRow
from tilewatch.db.page_reads.checks import CheckRow, CheckStory
from tilewatch.db.page_reads.evidence import RunRow, SamplesRow
from tilewatch.db.page_reads.regressions import EventRow, RegressionRow, RegressionSeriesRow
from tilewatch.db.page_reads.replays import ReplayRow, SuspicionRow
from tilewatch.db.page_reads.series import PointRow
from tilewatch.db.page_reads.sweeps import MeasurementRow, SweepRow, TrialRow
from tilewatch.db.page_reads.verdicts import DetectableChange, VerdictRow
from tilewatch.db.row_columns import SeriesRow
from tilewatch.worker.api.refusals import NotThere

LARGEST_ID = 2**63 - 1
TEXT = r"^[^\x00]*$"
"""A pattern for text without NUL characters, which Postgres cannot store."""

Repository = Annotated[str, Field(pattern=TEXT, description="A repository, as list_repositories names it.")]
Kernel = Annotated[str, Field(pattern=TEXT, description="A kernel, such as gemm_fp8.")]
Problem = Annotated[str, Field(pattern=TEXT, description="A problem of the kernel, such as 320x32576x7168.")]
GpuModel = Annotated[str, Field(pattern=TEXT, description="A GPU model, such as h200.")]
Id = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Limit = Annotated[int, Field(ge=1, le=1000, description="The most rows to return.")]
Rows = Annotated[int, Field(ge=1, le=100_000, description="The most rows to return; each has some hundred characters.")]
VerdictName = Literal["regression", "improvement", "unchanged", "undecided"]


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep: a trial per config, the fastest first, and measurements of the winner and baselines."""

    trials: list[TrialRow]
    measurements: list[MeasurementRow]


@dataclass(frozen=True)
class RunEvidence:
    """The data behind the verdict on a run. `run_before` is the run that this run is compared with, null for the first.

    `suspicion` is null if no change was suspected. `replays` are timings of two compiled kernels side by side on one
    GPU."""

    run: RunRow
    run_before: int | None
    samples: list[SamplesRow]
    suspicion: SuspicionRow | None
    replays: list[ReplayRow]


@dataclass(frozen=True)
class RegressionRecord:
    """A confirmed change of speed, with the series that it changed and its history."""

    regression: RegressionRow
    series: list[RegressionSeriesRow]
    events: list[EventRow]


def list_repositories(opened: Session) -> list[str]:
    """List the repositories that have results: watched repositories first, then repositories known from recordings."""
    return series.list_repositories(opened)


def list_series(opened: Session) -> list[SeriesRow]:
    """List every series: a kernel and a problem on a GPU model, over the commits of one repository."""
    return series.list_series(opened)


def list_points(
    opened: Session,
    repository: Repository,
    kernel: Kernel,
    problem: Problem,
    gpu_model: GpuModel,
    static_facts: Annotated[
        bool, Field(description="Also registers, spills and code size of each winner; null without.")
    ] = False,
    limit: Rows = 1000,
) -> list[PointRow]:
    """List the measurements of one series and of its baselines in commit order, the newest last, in microseconds."""
    points = series.list_points(opened, repository, kernel, problem, gpu_model, static_facts=static_facts)
    return points[-limit:]


def list_sweeps(
    opened: Session, repository: Repository, kernel: Kernel, problem: Problem, gpu_model: GpuModel, limit: Limit = 100
) -> list[SweepRow]:
    """List the sweeps of one kernel and problem on one GPU model, the newest commit first."""
    return sweeps.list_sweeps(opened, repository, kernel, problem, gpu_model, limit)


def read_sweep(opened: Session, sweep_id: Id, limit: Rows = 1000) -> SweepResults:
    """Read a sweep: each config with its time or the reason for a missing time, the fastest first, and the measurements
    of the winner and the baselines."""
    trials, measurements = sweeps.list_trials(opened, sweep_id), sweeps.list_measurements(opened, sweep_id)
    if not trials and not measurements:  # a weighted total has no trials
        raise NotThere(f"there is no sweep {sweep_id}")
    return SweepResults(trials[:limit], measurements)


def list_verdicts(
    opened: Session,
    repository: Repository,
    kernel: Kernel | None = None,
    problem: Problem | None = None,
    gpu_model: GpuModel | None = None,
    verdict: VerdictName | None = None,
    limit: Limit = 100,
) -> list[VerdictRow]:
    """List the newest verdicts: whether a run shows a change, its size (+0.05 is 5 % slower), and the reason."""
    return verdicts.list_verdicts(
        opened, repository=repository, kernel=kernel, problem=problem, gpu_model=gpu_model, verdict=verdict, limit=limit
    )


def read_detectable_change(
    opened: Session, repository: Repository, kernel: Kernel, problem: Problem, gpu_model: GpuModel
) -> DetectableChange:
    """Read the minimum detectable change of a series: the smallest relative change that one night can show."""
    found = verdicts.find_detectable_change(opened, repository, kernel, problem, gpu_model)
    if found is None:
        raise NotThere(f"no verdict of {kernel} {problem} on {gpu_model} knows its noise yet")
    return found


def read_evidence(opened: Session, run_id: Id) -> RunEvidence:
    """Read the data behind the verdict on a run: samples, telemetry, the suspicion, and the replays that tested it."""
    run = evidence.find_run(opened, run_id)
    if run is None:
        raise NotThere(f"there is no run {run_id}")
    return RunEvidence(
        run,
        evidence.find_run_before(opened, run_id),
        evidence.list_samples(opened, run_id),
        replays.find_suspicion(opened, run_id),
        replays.list_replays(opened, run_id),
    )


def list_regressions(opened: Session, limit: Limit = 100) -> list[RegressionRow]:
    """List confirmed changes, slower and faster ones, the newest first, with cause, state and owner."""
    return regressions.list_regressions(opened, limit=limit)


def read_regression(opened: Session, regression_id: Id) -> RegressionRecord:
    """Read one confirmed change, the series that it changed, and its history."""
    row = regressions.find_regression(opened, regression_id)
    if row is None:
        raise NotThere(f"there is no regression {regression_id}")
    return RegressionRecord(
        row, regressions.list_series(opened, regression_id), regressions.list_events(opened, regression_id)
    )


def list_checks(opened: Session, limit: Limit = 20) -> list[CheckRow]:
    """List the newest checks, each a comparison of two commits before a merge. An exit_code is null until the check has
    ended, then 0 for fine, 1 for slower, and 2 for "could not tell"."""
    return checks.list_checks(opened, limit)


def read_check(opened: Session, check_id: Id) -> CheckStory:
    """Read one check with the outcome of each kernel and problem. Its exit_code is null until the check has ended, then
    0 for fine, 1 for slower, and 2 for "could not tell"."""
    found = checks.find_check(opened, check_id)
    if found is None:
        raise NotThere(f"there is no check {check_id}")
    return found


def list_actions(opened: Session, limit: Limit = 20) -> list[ActionRow]:
    """List what people and programs did or asked for, the newest first: who, when, what, and the outcome."""
    return actions.list_actions(opened, limit)
