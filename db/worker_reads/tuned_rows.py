"""Reads the contents of a tuned table: the newest winner of each series, and times of other configs in its sweep."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, true
from sqlalchemy.orm import Session

from tilewatch.db import commit_order
from tilewatch.db.models import Commit, Config, Measurement, Run, Sweep, Trial
from tilewatch.db.query_parts import is_of_series, measured_runs, read_rows, select_row, series_keys


@dataclass(frozen=True)
class NewestWinner:
    """The winner of the newest run of a series. `tie` lists the configs that are as fast as it, itself included.
    `gpu_name` is the driver's name of the GPU. `certificate` is None for a kernel without a short list."""

    repository: str
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    arch: str
    sha: str
    source_sha256: str
    toolchain: Mapping[str, str]
    run_id: int
    sweep_id: int
    config_id: int
    config: Mapping[str, Any]
    time_us: float
    tie: Sequence[int]
    certificate: Mapping[str, Any] | None


def list_newest_winners(
    session: Session, *, repository: str | None = None, kernel: str | None = None, gpu_model: str | None = None
) -> list[NewestWinner]:
    """Lists the newest winner of each series that a GPU measured, here or elsewhere. None means no restriction. For
    each kernel and GPU model the winner of the newest commit comes first."""
    keys = series_keys()
    newest = (
        measured_runs(
            select(
                Run.id.label("run_id"),
                Run.tie,
                Run.toolchain,
                Run.gpu_name,
                Sweep.id.label("sweep_id"),
                Sweep.arch,
                Sweep.source_sha256,
                Commit.sha,
                Commit.id,
                Commit.position,
                Commit.left_branch_at,
                Measurement.config_id,
                Measurement.median_us,
                Measurement.detail["certificate"].label("certificate"),
            )
        )
        .where(*is_of_series(keys), Run.origin != "simulated")
        .order_by(*commit_order.newest_first(), Run.finished_at.desc(), Run.id.desc())
        .limit(1)
        .lateral()
    )
    wanted = {"repository": repository, "kernel": kernel, "gpu_model": gpu_model}
    query = (
        select_row(NewestWinner, [keys, newest], config=Config.params, time_us=newest.c.median_us)
        .select_from(keys)
        .join(newest, true())
        .join(Config, Config.id == newest.c.config_id)
        .where(*(keys.c[name] == value for name, value in wanted.items() if value is not None))
        .order_by(
            keys.c.repository,
            keys.c.kernel,
            keys.c.gpu_model,
            *commit_order.newest_first(newest),
            newest.c.run_id.desc(),
        )
    )
    return read_rows(session, query, NewestWinner)


def read_configs(session: Session, config_ids: Collection[int]) -> dict[int, Mapping[str, Any]]:
    rows = session.execute(select(Config.id, Config.params).where(Config.id == func.any(list(config_ids))))
    return {row.id: row.params for row in rows}


def read_trial_times(
    session: Session, sweep_ids: Collection[int], config_ids: Collection[int]
) -> dict[tuple[int, int], float]:
    """Returns the median times in us of these configs in these sweeps, by sweep and config, where there is one."""
    rows = session.execute(
        select(Trial.sweep_id, Trial.config_id, Trial.median_us).where(
            Trial.sweep_id == func.any(list(sweep_ids)),
            Trial.config_id == func.any(list(config_ids)),
            Trial.median_us.is_not(None),
        )
    )
    return {(row.sweep_id, row.config_id): row.median_us for row in rows}
