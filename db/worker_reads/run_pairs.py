"""Reads the newest run and the previous run of each series, for alarms about their differences."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, or_, true
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import TOTAL, Commit, Config, Measurement, Run, Sweep, Trial, Verdict
from tilewatch.db.query_parts import (
    Query,
    is_of_series,
    measured_runs,
    read_rows,
    select_named,
    select_row,
    series_keys,
)
from tilewatch.db.row_columns import SeriesColumns

HISTORY = dt.timedelta(days=60)
"""The longest time from the end of a run of the night before to the requested period. Older runs are left out."""

SHIPPED, TILE_TABLE = "shipped", "tile_table"
"""The names of two implementations that are timed beside the winner: the kernel with the config that the library's host
code launches, if that config is known, and the kernel with the config of the tile table."""


@dataclass(frozen=True)
class RunPair(SeriesColumns):
    """The newest run of a series. Fields that begin with `old_` are from the previous run on the same host."""

    host: str
    submission_id: int
    sha: str
    made_at: dt.datetime
    regret: float | None  # time of `ships`, or else of the tile table's config, divided by the winner's, minus 1
    old_table_regret: float | None  # of the tile table's config in the night before
    ships: Mapping[str, Any] | None  # the config of the library's host code
    winner: Mapping[str, Any]
    old_winner: Mapping[str, Any] | None
    old_winner_loss: float | None  # in the newest sweep; None if the old winner wins or ties
    toolchain: Mapping[str, str]
    old_toolchain: Mapping[str, str] | None
    checklist: list[dict[str, str]] | None = None  # with item, answer and evidence
    old_checklist: list[dict[str, str]] | None = None
    verdict: str | None = None


def list_newest_run_pairs(session: Session, since: dt.datetime) -> list[RunPair]:
    """Lists the newest run of each series since a time, with the previous run on the same host."""
    keys = series_keys()
    same = is_of_series(keys)
    newest_first = (*commit_order.newest_first(), Sweep.submission_id.desc(), Run.id.desc())
    now = _runs().where(*same, Run.finished_at >= since).order_by(*newest_first).limit(1).lateral()
    # Both runs may be of one commit, so that a new baseline raises one alarm and not one each night.
    then = (
        _runs()
        .where(
            *same,
            Run.finished_at >= since - HISTORY,
            Run.host == now.c.host,
            Run.origin == now.c.origin,
            commit_order.place_of_night(Commit, Sweep.submission_id, Run.id)
            < commit_order.place_of_night(now.c, now.c.submission_id, now.c.run_id),
        )
        .order_by(*commit_order.latest_night_first(Sweep.submission_id, Run.id))
        .limit(1)
        .lateral()
    )
    loser, winner_trial = aliased(Trial), aliased(Trial)
    shipped, table, old_table = aliased(Measurement), aliased(Measurement), aliased(Measurement)
    won, had_won, ships = aliased(Config), aliased(Config), aliased(Config)
    still = or_(then.c.config_id == now.c.config_id, then.c.config_id == func.any(now.c.tie))
    query = (
        select_row(
            RunPair,
            [keys, now, Verdict],
            made_at=now.c.finished_at,
            regret=func.coalesce(shipped.median_us, table.median_us) / now.c.median_us - 1,
            old_table_regret=old_table.median_us / then.c.median_us - 1,
            ships=ships.params,
            winner=won.params,
            old_winner=had_won.params,
            old_winner_loss=loser.median_us / func.nullif(winner_trial.median_us, 0.0) - 1,
            old_toolchain=then.c.toolchain,
            old_checklist=then.c.checklist,
        )
        .select_from(keys)
        .join(now, true())
        .outerjoin(then, true())
        .outerjoin(Verdict, Verdict.run_id == now.c.run_id)
        .join(won, won.id == now.c.config_id)
        .outerjoin(had_won, had_won.id == then.c.config_id)
        .outerjoin(shipped, and_(shipped.run_id == now.c.run_id, shipped.implementation == SHIPPED))
        .outerjoin(ships, ships.id == shipped.config_id)
        .outerjoin(table, and_(table.run_id == now.c.run_id, table.implementation == TILE_TABLE))
        .outerjoin(old_table, and_(old_table.run_id == then.c.run_id, old_table.implementation == TILE_TABLE))
        .outerjoin(winner_trial, and_(winner_trial.sweep_id == now.c.sweep_id, winner_trial.config_id == won.id))
        .outerjoin(loser, and_(loser.sweep_id == now.c.sweep_id, loser.config_id == had_won.id, ~still))
        .where(keys.c.kernel != TOTAL)  # the parts of a total are compared, not the total
        .order_by(keys.c.kernel, keys.c.problem, keys.c.gpu_model)
    )
    return read_rows(session, query, RunPair)


def _runs() -> Query:
    of_run = ("run_id", "host", "origin", "tie", "toolchain", "finished_at", "sweep_id", "submission_id", "config_id")
    of_result = ("sha", "id", "position", "median_us", "checklist")
    tables, ids = [Run, Commit, Sweep, Measurement], {"run_id": Run.id, "sweep_id": Sweep.id, "id": Commit.id}
    checklist = Measurement.detail["checklist"]
    return measured_runs(select_named((*of_run, *of_result), tables, **ids, checklist=checklist)).where(
        Run.origin != "recorded"
    )
