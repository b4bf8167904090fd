"""Finds configs that worked in an earlier sweep and not in a later one: they stopped compiling or became wrong.

worker/notify/update_alarms.py decides which of them is an alarm. A sweep is compared with the previous one of its
series: that of the nearest earlier commit, or of the same commit in an earlier night, which shows a changed compiler.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, true, tuple_
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import Commit, Compilation, Config, Run, Submission, Sweep, Trial
from tilewatch.db.query_parts import Query, is_of_series, is_part_of_space, series_keys

LOOKED_AT = 3
"""Newest sweeps of a series that are read, as the first may still compile. Reading all would read every trial."""


@dataclass(frozen=True)
class SweepPair:
    """A sweep and the previous one of its series."""

    repository: str
    kernel: str
    problem: str
    gpu_model: str
    submission_id: int
    sha: str
    made_at: dt.datetime
    before_id: int
    after_id: int


@dataclass(frozen=True)
class FallenConfig:
    """A config that worked in the earlier sweep of a pair and does not in the later one."""

    after_id: int
    kind: str
    params: Mapping[str, Any]
    failure: str


def list_newest_pairs(session: Session, since: dt.datetime) -> list[SweepPair]:
    """Lists for each series its newest fully compiled sweep, if it was made since a time, with the previous one."""
    keys = series_keys()
    newest = (
        _sweeps()
        .where(*is_of_series(keys))
        .order_by(*commit_order.newest_first(), Sweep.id.desc())
        .limit(LOOKED_AT)
        .lateral()
    )
    newest_first = _newest_first(newest.c.left_branch_at.is_(None), newest.c.position, newest.c.id)
    query = (
        select(
            keys.c.repository,
            keys.c.kernel,
            keys.c.problem,
            keys.c.gpu_model,
            newest_first(newest.c.id).label("ids"),
            newest_first(newest.c.submission_id).label("submission_ids"),
            newest_first(newest.c.sha).label("shas"),
            newest_first(newest.c.created_at).label("made"),
        )
        .select_from(keys)
        .join(newest, true())
        .where(~exists().where(Trial.sweep_id == newest.c.id, Trial.status == "waiting"))
        .group_by(*keys.c)
        .having(func.count() >= 2)
    )
    return [
        SweepPair(
            row.repository,
            row.kernel,
            row.problem,
            row.gpu_model,
            row.submission_ids[0],
            row.shas[0],
            row.made[0],
            before_id=row.ids[1],
            after_id=row.ids[0],
        )
        for row in session.execute(query)
        if row.made[0] >= since
    ]


def list_pairs_since(
    session: Session, kernel: str, gpu_model: str, submission_id: int, *, measured: bool
) -> list[SweepPair]:
    """Lists for each series of a kernel the last sweep before a submission and the newest one, for open alarms.

    With `measured`, the newest sweep is the newest with a run.
    """
    first, first_commit = aliased(Sweep), aliased(Commit)
    then = (
        select(first.problem, first.id, first_commit.position, first.repository)
        .join(first_commit, first_commit.id == first.commit_id)
        .where(first.submission_id == submission_id, first.kernel == kernel, first.gpu_model == gpu_model)
        .subquery()
    )
    theirs = (Sweep.kernel == kernel, Sweep.gpu_model == gpu_model, Sweep.problem == then.c.problem)
    same = (*theirs, Sweep.repository == then.c.repository, ~_is_compiling())
    before = (
        _sweeps()
        .where(*same, tuple_(Commit.position, Sweep.id) < tuple_(then.c.position, then.c.id))
        .order_by(*commit_order.latest_first(), Sweep.id.desc())
        .limit(1)
        .lateral()
    )
    newest_first = (*commit_order.newest_first(), Sweep.id.desc())
    done = [exists().where(Run.sweep_id == Sweep.id)] if measured else []
    after = _sweeps().where(*same, *done).order_by(*newest_first).limit(1).lateral()
    query = (
        select(then.c.repository, then.c.problem, before.c.id, after.c.id, after.c.sha, after.c.created_at)
        .select_from(then)
        .join(before, true())
        .join(after, true())
    )
    return [
        SweepPair(repository, kernel, problem, gpu_model, submission_id, sha, made_at, before_id, after_id)
        for repository, problem, before_id, after_id, sha, made_at in session.execute(query)
        if before_id != after_id
    ]


def list_fallen_configs(session: Session, pairs: Sequence[SweepPair]) -> list[FallenConfig]:
    """Lists the configs of these pairs that stopped compiling or became wrong. Timeouts are left out: the machine may
    only have been busy, and people stop reading alarms that are often wrong."""
    if not pairs:
        return []
    of = func.unnest([pair.before_id for pair in pairs], [pair.after_id for pair in pairs])
    pair = of.table_valued("before_id", "after_id").render_derived()
    before, after = aliased(Trial), aliased(Trial)
    stopped = and_(before.status.not_in(("waiting", "not_compiled")), Compilation.status == "error")
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
    """Selects sweeps of whole spaces, without imported ones: the Tilewatch that measured those raises their alarms."""
    return (
        select(Sweep.id, Sweep.submission_id, Sweep.created_at, Commit.sha, Commit.position, Commit.left_branch_at)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Submission, Submission.id == Sweep.submission_id)
        .where(Submission.reason != "recorded", ~is_part_of_space())
    )


def _is_compiling() -> ColumnElement[bool]:
    return exists().where(Trial.sweep_id == Sweep.id, Trial.status == "waiting")


def _newest_first(*by: ColumnElement[Any]) -> Any:
    return lambda column: func.array_agg(aggregate_order_by(column, *(each.desc() for each in by)))
