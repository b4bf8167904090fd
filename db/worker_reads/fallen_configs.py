"""Finds configs that worked in one sweep but not in the next sweep of the series."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Tuple, and_, exists, func, or_, select, true
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.selectable import LateralFromClause

from tilewatch.db import commit_order
from tilewatch.db.models import Commit, Compilation, Config, Run, Submission, Sweep, Trial
from tilewatch.db.query_parts import DIED, SERIES, Query, is_of_series, is_part_of_space, read_rows, series_keys
from tilewatch.db.row_columns import SeriesColumns

LAST_ASKED = (Sweep.submission_id.desc(), Sweep.id.desc())
PLACE = commit_order.place_of_night(Commit, Sweep.submission_id, Sweep.id)
LOOKED_AT = 3
"""The number of a series' newest sweeps that are searched for a fully compiled one. The newest may still compile."""


@dataclass(frozen=True)
class SweepPair(SeriesColumns):
    """A sweep of a series and the previous sweep, by their ids. The other fields describe the later sweep."""

    submission_id: int
    sha: str
    made_at: dt.datetime
    before_id: int
    after_id: int


@dataclass(frozen=True)
class FallenConfig:
    """A config that worked in the earlier sweep of a pair, but not in the later sweep."""

    after_id: int
    kind: str  # of its alarm
    params: Mapping[str, Any]
    failure: str


def list_newest_pairs(session: Session, since: dt.datetime) -> list[SweepPair]:
    """Lists the two newest compiled sweeps of each series, if the newest was made after `since`."""
    keys = series_keys()
    own = _sweeps().where(*is_of_series(keys))
    after = _first_compiled(own, commit_order.newest_first, keys)
    before = _first_compiled(own.where(_find_place(after) > PLACE), commit_order.latest_first, keys, after)
    query = select(*keys.c, after.c.submission_id, *_sides(before, after)).select_from(keys)
    of_both = query.join(after, true()).join(before, true()).where(after.c.created_at >= since)
    return read_rows(session, of_both, SweepPair)


def list_pairs_since(
    session: Session, kernel: str, gpu_model: str, submission_id: int, *, measured: bool
) -> list[SweepPair]:
    """Lists, for each series of a submission, the last sweep before the submission and the newest sweep."""
    # These pairs show whether an alarm that the submission raised still holds.
    named = (Sweep.submission_id == submission_id, Sweep.kernel == kernel, Sweep.gpu_model == gpu_model)
    then = _sweeps().where(*named).subquery()
    compiles = exists().where(Trial.sweep_id == Sweep.id, Trial.status == "waiting")
    same = (*(getattr(Sweep, name) == then.c[name] for name in SERIES), ~compiles)
    latest_first = commit_order.latest_night_first(Sweep.submission_id, Sweep.id)
    before = _sweeps().where(*same, _find_place(then) > PLACE).order_by(*latest_first).limit(1).lateral()
    newest_first = (*commit_order.newest_first(), *LAST_ASKED)
    done = [exists().where(Run.sweep_id == Sweep.id)] if measured else []
    after = _sweeps().where(*same, *done).order_by(*newest_first).limit(1).lateral()
    query = (
        select(*(then.c[name] for name in SERIES), then.c.submission_id, *_sides(before, after))
        .select_from(then)
        .join(before, true())
        .join(after, true())
        .where(before.c.sweep_id != after.c.sweep_id)
    )
    return read_rows(session, query, SweepPair)


def list_fallen_configs(session: Session, pairs: Sequence[SweepPair]) -> list[FallenConfig]:
    """Lists the configs that stopped compiling or became wrong from the first to the second sweep of a pair."""
    if not pairs:
        return []
    of = func.unnest([pair.before_id for pair in pairs], [pair.after_id for pair in pairs])
    pair = of.table_valued("before_id", "after_id").render_derived()
    before, after = aliased(Trial), aliased(Trial)
    # No timeouts or processes that died: the machine may only have been busy or without memory, and people stop reading
    # alarms that are often wrong.
    failed = and_(Compilation.status == "error", Compilation.failure.not_like(DIED))
    stopped = and_(before.status.not_in(("waiting", "not_compiled")), failed)
    wrong = and_(before.status == "timed", after.status == "wrong")
    query = (
        select(
            pair.c.after_id,
            func.coalesce(after.failure, "").label("failure"),
            Config.params,
            (after.status == "wrong").label("is_wrong"),
        )
        .select_from(pair)
        .join(before, before.sweep_id == pair.c.before_id)
        .join(after, and_(after.sweep_id == pair.c.after_id, after.config_id == before.config_id))
        .join(Config, Config.id == after.config_id)
        .outerjoin(Compilation, Compilation.id == after.compilation_id)
        .where(or_(stopped, wrong))
        .order_by(pair.c.after_id, after.config_id)
    )
    return [
        FallenConfig(row.after_id, "became_wrong" if row.is_wrong else "stopped_compiling", row.params, row.failure)
        for row in session.execute(query)
    ]


def _sweeps() -> Query:
    """Returns the query for sweeps that left out no config. Imported sweeps are not included."""
    return (
        select(
            *(getattr(Sweep, name) for name in SERIES),
            Sweep.id.label("sweep_id"),
            Sweep.submission_id,
            Sweep.created_at,
            Commit.sha,
            Commit.id,
            Commit.position,
            Commit.left_branch_at,
        )
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Submission, Submission.id == Sweep.submission_id)
        .where(Submission.reason != "recorded", ~is_part_of_space())
    )


def _sides(before: FromClause, after: FromClause) -> tuple[ColumnElement[Any], ...]:
    sweeps = (before.c.sweep_id.label("before_id"), after.c.sweep_id.label("after_id"))
    return (after.c.sha, after.c.created_at.label("made_at"), *sweeps)


def _find_place(sweep: FromClause) -> Tuple:
    return commit_order.place_of_night(sweep.c, sweep.c.submission_id, sweep.c.sweep_id)


def _first_compiled(sweeps: Query, order: Callable[..., Any], *outside: FromClause) -> LateralFromClause:
    """Returns the query for the first sweep in `order` that is completely compiled."""
    few = sweeps.order_by(*order(), *LAST_ASKED).limit(LOOKED_AT).correlate(*outside).subquery()
    waits = exists().where(Trial.sweep_id == few.c.sweep_id, Trial.status == "waiting")
    last = (few.c.submission_id.desc(), few.c.sweep_id.desc())
    return select(few).where(~waits).order_by(*order(few.c), *last).limit(1).correlate(*outside).lateral()
