"""Reads sweeps and replays with all their rows, to be written to a recording."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Replay,
    Run,
    Submission,
    Sweep,
    Trial,
)
from tilewatch.db.query_parts import is_swept

Params = Mapping[str, int]


@dataclass(frozen=True)
class ExportFilter:
    """The filter for an export. A field that is None selects everything. `since` is a day in UTC."""

    repository: str | None = None
    kernel: str | None = None
    gpu_model: str | None = None
    since: dt.date | None = None


@dataclass(frozen=True)
class SweepExport:
    """A sweep with its stored rows. `params` has the parameters of the configs in `Run.tie`, by config id."""

    sweep: Sweep
    submission: Submission
    commit: Commit
    gpu_model: GpuModel
    trials: tuple[tuple[Trial, Params, Compilation | None], ...]
    runs: tuple[tuple[Run, tuple[tuple[Measurement, Params | None], ...]], ...]
    params: Mapping[int, Params]


@dataclass(frozen=True)
class ReplayExport:
    """A replay with its two commits and configs, which may be absent from the exported sweeps."""

    replay: Replay
    good_commit: Commit
    bad_commit: Commit
    good_params: Params | None
    bad_params: Params | None


def list_sweeps_to_export(session: Session, wanted: ExportFilter) -> list[int]:
    """Lists the ids of sweeps with a run that was neither imported nor simulated, the oldest commit first."""
    query = (
        select(Sweep.id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(
            exists().where(Run.sweep_id == Sweep.id, Run.origin == "measured", *_is_since(wanted, Run.finished_at)),
            is_swept(Sweep.kernel),  # the others are computed again from these
            *_conditions(wanted, Sweep.repository, Sweep.kernel, Sweep.gpu_model),
        )
        .order_by(*commit_order.oldest_first(), Sweep.id)
    )
    return list(session.scalars(query))


def list_replays_to_export(session: Session, wanted: ExportFilter) -> list[ReplayExport]:
    """Lists the replays that were neither imported nor simulated, the oldest first."""
    good, bad = aliased(Commit), aliased(Commit)
    good_config, bad_config = aliased(Config), aliased(Config)
    query = (
        select(Replay, good, bad, good_config.params, bad_config.params)
        .join(good, good.id == Replay.good_commit_id)
        .join(bad, bad.id == Replay.bad_commit_id)
        .outerjoin(good_config, good_config.id == Replay.good_config_id)
        .outerjoin(bad_config, bad_config.id == Replay.bad_config_id)
        .where(
            Replay.origin == "measured",
            *_conditions(wanted, good.repository, Replay.kernel, Replay.gpu_model),
            *_is_since(wanted, Replay.at),
        )
        .order_by(Replay.id)
    )
    return [ReplayExport(*row) for row in session.execute(query)]


def read_sweep_export(session: Session, sweep_id: int) -> SweepExport:
    """Returns a sweep with its rows. Leaves out imported and simulated runs."""
    sweep = session.get_one(Sweep, sweep_id)
    trials = session.execute(
        select(Trial, Config.params, Compilation)
        .join(Config, Config.id == Trial.config_id)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == sweep_id)
        .order_by(Trial.config_id)
    )
    measured = select(Run).where(Run.sweep_id == sweep_id, Run.origin == "measured").order_by(Run.started_at)
    runs = tuple((run, _measurements(session, run.id)) for run in session.scalars(measured).all())
    tied_ids = [config_id for run, _ in runs for config_id in run.tie]
    params = session.execute(select(Config.id, Config.params).where(Config.id == func.any(tied_ids)))
    return SweepExport(
        sweep,
        sweep.submission,
        sweep.submission.commit,
        session.get_one(GpuModel, sweep.gpu_model),
        tuple((trial, config, compilation) for trial, config, compilation in trials),
        runs,
        {row.id: row.params for row in params},
    )


def list_own_repositories(session: Session) -> set[str]:
    """Returns the names of the repositories that have a submission that was not imported."""
    query = select(Commit.repository).distinct().join(Submission).where(Submission.recording_id.is_(None))
    return set(session.scalars(query))


def has_recording(session: Session, sha256: str) -> bool:
    """Returns whether a recording with this SHA-256 was imported."""
    return session.scalar(select(Recording.id).where(Recording.sha256 == sha256)) is not None


def find_known_run_keys(session: Session, keys: Sequence[str]) -> set[str]:
    """Returns the given run keys that are stored already."""
    return set(session.scalars(select(Run.key).where(Run.key == func.any(list(keys)))))


def find_known_replays(session: Session, keys: Sequence[str]) -> set[tuple[str, dt.datetime]]:
    """Returns the keys and times of the stored replays that have one of the given keys."""
    query = select(Replay.key, Replay.at).where(Replay.key == func.any(list(keys)))
    return {(row.key, row.at) for row in session.execute(query)}


def _measurements(session: Session, run_id: int) -> tuple[tuple[Measurement, Params | None], ...]:
    query = (
        select(Measurement, Config.params)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Measurement.run_id == run_id)
        .order_by(Measurement.id)
    )
    return tuple((measurement, config) for measurement, config in session.execute(query))


def _conditions(
    wanted: ExportFilter,
    repository: InstrumentedAttribute[str],
    kernel: InstrumentedAttribute[str],
    gpu_model: InstrumentedAttribute[str],
) -> list[ColumnElement[bool]]:
    equal: list[tuple[Any, str | None]] = [
        (repository, wanted.repository),
        (kernel, wanted.kernel),
        (gpu_model, wanted.gpu_model),
    ]
    return [column == value for column, value in equal if value is not None]


def _is_since(wanted: ExportFilter, at: InstrumentedAttribute[dt.datetime]) -> list[ColumnElement[bool]]:
    return [] if wanted.since is None else [func.timezone("UTC", at) >= wanted.since]
