"""Reads the rows of a table of tuned configs: the newest winner of each series, and the times of other configs."""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import Commit, Compilation, Config, Measurement, Replay, Run, Sweep, Trial
from tilewatch.db.query_parts import (
    is_of_series,
    is_swept,
    measured_runs,
    read_rows,
    select_named,
    select_row,
    series_keys,
)
from tilewatch.db.row_columns import SeriesRow


@dataclass(frozen=True)
class NewestWinner(SeriesRow):
    """The winner of the newest run of a series."""

    arch: str
    sha: str
    source_sha256: str
    toolchain: Mapping[str, str]
    run_id: int
    sweep_id: int
    config_id: int
    config: Mapping[str, Any]
    time_us: float
    tie: Sequence[int]  # the ids of the winner and of configs that are as fast
    certificate: Mapping[str, Any] | None  # None for a kernel without a short list
    finished_at: dt.datetime
    baseline: str | None
    ratio: float | None  # the baseline's time divided by the winner's
    error: float | None  # None without a reference


def list_newest_winners(
    session: Session, *, repository: str | None = None, kernel: str | None = None, gpu_model: str | None = None
) -> list[NewestWinner]:
    """Lists the newest winner of each series that a GPU measured. A filter that is None selects everything."""
    keys = series_keys()
    of_run = ("run_id", "tie", "toolchain", "gpu_name", "finished_at", "sweep_id", "arch", "source_sha256", "config_id")
    of_result = ("sha", "id", "position", "left_branch_at", "median_us", "baseline", "ratio", "certificate")
    tables, ids = [Run, Commit, Sweep, Measurement], {"run_id": Run.id, "sweep_id": Sweep.id, "id": Commit.id}
    certificate = Measurement.detail["certificate"]
    newest = (
        measured_runs(select_named((*of_run, *of_result), tables, **ids, certificate=certificate))
        .where(*is_of_series(keys), Run.origin != "simulated")
        .order_by(*commit_order.newest_first(), Run.finished_at.desc(), Run.id.desc())
        .limit(1)
        .lateral()
    )
    wanted = {"repository": repository, "kernel": kernel, "gpu_model": gpu_model}
    query = (
        select_row(NewestWinner, [keys, newest], config=Config.params, time_us=newest.c.median_us, error=Trial.error)
        .select_from(keys)
        .join(newest, true())
        .join(Config, Config.id == newest.c.config_id)
        .outerjoin(Trial, and_(Trial.sweep_id == newest.c.sweep_id, Trial.config_id == newest.c.config_id))
        .where(is_swept(keys.c.kernel), *(keys.c[name] == value for name, value in wanted.items() if value is not None))
        .order_by(
            keys.c.repository,
            keys.c.kernel,
            keys.c.gpu_model,
            *commit_order.newest_first(newest.c),
            newest.c.run_id.desc(),
        )
    )
    return read_rows(session, query, NewestWinner)


@dataclass(frozen=True)
class ConfigReplay:
    """A replay of config `base` against `head`, a run's winner or an equally fast config. The times are empty if both
    configs have equal code."""

    run_id: int
    base: Mapping[str, Any]
    head: Mapping[str, Any]
    base_us: Sequence[float]
    head_us: Sequence[float]
    sha: str
    compiler: str


def list_config_replays(session: Session, run_ids: Collection[int]) -> list[ConfigReplay]:
    """Lists, for each of these runs, the newest replay of each config against the winner or a tied config."""
    base, head, timed = aliased(Config), aliased(Config), aliased(Replay)
    of_codes = ("kernel", "problem", "gpu_model", "axis", "origin", "good_code_sha256", "bad_code_sha256")
    same_codes = [getattr(timed, name) == getattr(Replay, name) for name in of_codes]
    of_series = [getattr(Replay, name) == getattr(Sweep, name) for name in ("kernel", "problem", "gpu_model")]
    query = (
        select_row(
            ConfigReplay,
            [Replay, Commit],
            run_id=Run.id,
            base=base.params,
            head=head.params,
            # The times may be from another replay of the same two codes.
            base_us=func.coalesce(timed.good_us, Replay.good_us),
            head_us=func.coalesce(timed.bad_us, Replay.bad_us),
            compiler=Replay.bad_toolchain,
        )
        .ext(distinct_on(Run.id, Replay.good_config_id))
        .select_from(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Replay, and_(*of_series, Replay.axis == "config", Replay.origin == Run.origin))
        .join(Commit, and_(Commit.id == Replay.bad_commit_id, Commit.repository == Sweep.repository))
        .join(Trial, and_(Trial.sweep_id == Sweep.id, Trial.config_id == Replay.bad_config_id))
        .join(Compilation, Compilation.id == Trial.compilation_id)
        .outerjoin(timed, and_(*same_codes, timed.failure.is_(None)))
        .join(base, base.id == Replay.good_config_id)
        .join(head, head.id == Replay.bad_config_id)
        .where(
            Run.id == func.any(list(run_ids)),
            Compilation.content_key == Replay.bad_content_key,
            or_(Replay.bad_config_id == Measurement.config_id, Replay.bad_config_id == func.any(Run.tie)),
            or_(timed.id.is_not(None), Replay.failure.is_(None), Replay.good_code_sha256 == Replay.bad_code_sha256),
        )
        .order_by(Run.id, Replay.good_config_id, Replay.id.desc(), timed.id.desc())
    )
    return read_rows(session, query, ConfigReplay)


def read_configs(session: Session, config_ids: Collection[int]) -> dict[int, Mapping[str, Any]]:
    rows = session.execute(select(Config.id, Config.params).where(Config.id == func.any(list(config_ids))))
    return {row.id: row.params for row in rows}


def read_trial_times(
    session: Session, sweep_ids: Collection[int], config_ids: Collection[int]
) -> dict[tuple[int, int], float]:
    """Returns the known median times in us of these configs, by sweep id and config id."""
    rows = session.execute(
        select(Trial.sweep_id, Trial.config_id, Trial.median_us).where(
            Trial.sweep_id == func.any(list(sweep_ids)),
            Trial.config_id == func.any(list(config_ids)),
            Trial.median_us.is_not(None),
        )
    )
    return {(row.sweep_id, row.config_id): row.median_us for row in rows}
