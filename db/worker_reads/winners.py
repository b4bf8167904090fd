"""Reads the winners of runs, their machine code, and other facts that may explain a run's time."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Compilation, Config, Measurement, Replay, Run, Sweep, Trial
from tilewatch.db.query_parts import Query, is_part_of_space, read_rows, select_row
from tilewatch.db.worker_reads.judging import RUNS_LOOKED_AT, Scope
from tilewatch.mechanisms.pairs import read_swizzled


@dataclass(frozen=True)
class Winner:
    """The winner of a run: its config, and the hash of the machine code that ran."""

    run_id: int
    sweep_id: int
    source_sha256: str
    config_id: int
    params: dict[str, int]
    content_key: str
    symbol: str
    code_sha256: str
    compiler: str


@dataclass(frozen=True)
class LastWinner:
    """The winner of the newest run of a kernel on a problem. `finished_at` is in ISO 8601."""

    kernel: str
    problem: str
    params: dict[str, int]
    finished_at: str


@dataclass(frozen=True)
class LastTrial:
    kernel: str
    problem: str
    params: dict[str, int]
    median_us: float


@dataclass(frozen=True)
class RunFacts:
    """The winner of a run and the facts that may explain its time."""

    time_us: float
    baseline: str | None
    baseline_us: float | None
    params: dict[str, int]
    tied: tuple[dict[str, int], ...]  # other configs that are as fast, within the error
    axes: dict[str, tuple[int, ...]]
    statics: dict[str, int]
    instructions: dict[str, int]  # counts of those that the compiler's remarks name
    code_sha256: str | None
    toolchain: dict[str, str]
    host: str
    telemetry: tuple[dict[str, Any], ...]
    problem: str = ""
    arch: str = ""
    counters: dict[str, float] = field(default_factory=dict)  # empty without counters
    is_swizzled: bool | None = None  # by the checklist; None without an answer


def _select_code(*trial: ColumnElement[bool]) -> Query:
    """Returns the query for `Winner`, one row per compiled trial that fulfils the conditions."""
    return (
        select_row(Winner, [Sweep, Config, Compilation], run_id=Run.id, sweep_id=Sweep.id, config_id=Config.id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Trial, and_(Trial.sweep_id == Sweep.id, *trial))
        .join(Config, Config.id == Trial.config_id)
        .join(Compilation, Compilation.id == Trial.compilation_id)
        .where(Compilation.status == "ok")
    )


_SIDES = _select_code(Trial.config_id == Measurement.config_id)
"""The query for the winner of every run. Callers add conditions to the query."""


def read_winners_at(session: Session, scope: Scope, commit_id: int) -> dict[tuple[str, str], dict[str, Winner]]:
    """Returns {(kernel, problem): {host: winner of the host's first run}} at a commit, the first run's host first."""
    query = (
        _SIDES.add_columns(Sweep.kernel, Sweep.problem, Run.host)
        .ext(distinct_on(Sweep.kernel, Sweep.problem, Run.host))
        .where(Sweep.commit_id == commit_id, Sweep.gpu_model == scope.gpu_model, Run.origin == scope.origin)
        .order_by(Sweep.kernel, Sweep.problem, Run.host, Run.id)
    )
    found: dict[tuple[str, str], dict[str, Winner]] = {}
    for *winner, kernel, problem, host in sorted(session.execute(query), key=lambda row: row.run_id):
        found.setdefault((kernel, problem), {})[host] = Winner(*winner)
    return found


def read_winners_of_runs(session: Session, run_ids: Collection[int]) -> dict[int, Winner]:
    """Returns the winner of each run, by the run's id."""
    query = _SIDES.where(Run.id == func.any(list(run_ids)))
    return {row.run_id: Winner(**row._mapping) for row in session.execute(query)}


def read_beaten_lists(session: Session, run_ids: Collection[int], better_by: float) -> dict[int, Winner]:
    """Returns, by run id, the short list's fastest config if a config outside the list was clearly faster."""
    tried, won = (Sweep.space["listed"].contains(func.to_jsonb(each.config_id)) for each in (Trial, Measurement))
    # The lead must exceed earlier leads with the same code, compiler and driver by `better_by`.
    ahead, before = (Measurement.detail["certificate"][name].as_float() for name in ("ahead", "ahead_before"))
    query = (
        _select_code(Trial.median_us.is_not(None), tried)
        .ext(distinct_on(Run.id))
        .where(Run.id == func.any(list(run_ids)), ahead - before >= better_by, ~won)
        .order_by(Run.id, Trial.median_us)
    )
    return {row.run_id: Winner(**row._mapping) for row in session.execute(query)}


def list_runs_to_compare(session: Session, limit: int) -> list[int]:
    """Lists the newest runs whose winner's code was not compared yet, newest first. Leaves out recorded runs."""
    oldest = select(func.max(Run.id) - RUNS_LOOKED_AT).scalar_subquery()
    query = select(Run.id).where(Run.id > oldest, Run.code_compared_at.is_(None), Run.origin != "recorded")
    return list(session.scalars(query.order_by(Run.id.desc()).limit(limit)))


def list_last_winners(session: Session, repository: str, gpu_model: str) -> list[LastWinner]:
    """Lists the last winner of each kernel and problem of a repository, recorded runs included."""
    query = (
        select(Sweep.kernel, Sweep.problem, Config.params, Run.finished_at)
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Config, Config.id == Measurement.config_id)
        .where(Sweep.repository == repository, Sweep.gpu_model == gpu_model)
        .order_by(Sweep.kernel, Sweep.problem, Run.finished_at.desc(), Run.id.desc())
    )
    return [
        LastWinner(kernel, problem, params, finished_at.isoformat())
        for kernel, problem, params, finished_at in session.execute(query)
    ]


def list_last_trials(session: Session, repository: str, gpu_model: str) -> list[LastTrial]:
    """Lists the timed trials in the newest complete sweep of each kernel and problem."""
    newest = (
        select(Sweep.id)
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .join(Run, Run.sweep_id == Sweep.id)
        .where(Sweep.repository == repository, Sweep.gpu_model == gpu_model, ~is_part_of_space())
        .order_by(Sweep.kernel, Sweep.problem, Run.finished_at.desc(), Run.id.desc())
    )
    query = (
        select(Sweep.kernel, Sweep.problem, Config.params, Trial.median_us)
        .join(Trial, Trial.sweep_id == Sweep.id)
        .join(Config, Config.id == Trial.config_id)
        .where(Sweep.id.in_(newest), Trial.median_us.is_not(None))
    )
    return read_rows(session, query, LastTrial)


def read_measured_commits(session: Session, scope: Scope, kernel: str, problem: str) -> dict[int, int]:
    """Returns the ids of the commits at which a series was measured, by position, up to the position of `scope`."""
    query = (
        select(Commit.position, func.min(Commit.id))
        .join(Sweep, Sweep.commit_id == Commit.id)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(
            Commit.repository == scope.repository,
            Commit.position <= scope.position,
            Sweep.kernel == kernel,
            Sweep.problem == problem,
            Sweep.gpu_model == scope.gpu_model,
            Run.origin == scope.origin,
        )
        .group_by(Commit.position)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def find_code(session: Session, sweep_id: int, config_id: int) -> str | None:
    """Returns the hash of a config's machine code in a sweep; None if it has no machine code."""
    query = (
        select(Compilation.code_sha256)
        .join(Trial, Trial.compilation_id == Compilation.id)
        .where(Trial.sweep_id == sweep_id, Trial.config_id == config_id)
    )
    return session.scalar(query)


def read_run_facts(session: Session, run_id: int) -> RunFacts:
    """Returns the facts that may explain a run's time. Raises NoResultFound if the run has no winner."""
    query = (
        select(Run, Sweep, Measurement, Config.params, Compilation)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Config, Config.id == Measurement.config_id)
        .join(Trial, and_(Trial.sweep_id == Sweep.id, Trial.config_id == Config.id))
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Run.id == run_id)
    )
    run, sweep, measured, params, compiled = session.execute(query).one()
    remarks = compiled.remarks if compiled is not None else []
    tied = session.scalars(select(Config.params).where(Config.id.in_(run.tie)).order_by(Config.id))
    names = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "tma_loads", "loads", "tensor_core_mmas", "mmas")
    return RunFacts(
        time_us=measured.median_us,
        baseline=measured.baseline,
        baseline_us=None if measured.ratio is None else measured.median_us * measured.ratio,
        params=params,
        tied=tuple(each for each in tied if each != params),
        axes={name: tuple(values) for name, values in sweep.space["axes"]},
        statics={name: value for name in names if (value := getattr(compiled, name, None)) is not None},
        instructions=Counter(each["instruction"] for each in remarks if each.get("instruction")),
        code_sha256=None if compiled is None else compiled.code_sha256,
        toolchain=run.toolchain,
        host=run.host,
        telemetry=tuple(run.telemetry),
        problem=sweep.problem,
        arch=sweep.arch,
        counters=measured.detail.get("counters") or {},
        is_swizzled=read_swizzled(measured.detail.get("checklist")),
    )


def read_pair_facts(session: Session, good_run_id: int, bad_run_id: int) -> tuple[RunFacts, RunFacts]:
    """Returns the facts that may explain the times of two runs. Raises NoResultFound if a run has no winner."""
    good, bad = (read_run_facts(session, run_id) for run_id in (good_run_id, bad_run_id))
    query = (
        select(Replay.counters)
        .join(Sweep, and_(Sweep.kernel == Replay.kernel, Sweep.problem == Replay.problem))
        .join(Run, Run.sweep_id == Sweep.id)
        .where(
            Run.id == bad_run_id,
            Replay.gpu_model == Sweep.gpu_model,
            Replay.good_code_sha256 == good.code_sha256,
            Replay.bad_code_sha256 == bad.code_sha256,
            Replay.counters.has_key("good"),
        )
        .order_by(Replay.id.desc())
        .limit(1)
    )
    # The counters of one replay replace the counters of the runs, which are from different nights.
    counted = session.scalar(query)
    if counted is None:
        return good, bad
    return replace(good, counters=counted["good"]), replace(bad, counters=counted["bad"])
