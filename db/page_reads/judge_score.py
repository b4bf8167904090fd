"""Reads how often verdicts were right, how late messages were sent, and how many replays ran."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, exists, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Commit, Mark, Message, Regression, RegressionSeries, Replay, Run, Suspicion, Verdict
from tilewatch.db.query_parts import is_counted

FALSE_ALARM_BUDGET = 0.05
"""The largest allowed number of false alarms per 1,000 judged points, in simulations with disturbances."""

Z_95 = 1.96


@dataclass(frozen=True)
class Delay:
    """Statistics of the hours until a regression's first message, over `count` regressions."""

    count: int
    median_h: float | None
    p90_h: float | None


@dataclass(frozen=True)
class Score:
    """Counts of right and wrong verdicts and of replays, and the delays of messages."""

    since: dt.datetime | None
    points: int
    regressions: int
    improvements: int
    right: int
    wrong: int
    missed: int  # verdicts that report no change and were marked wrong
    from_commit: Delay  # from a regression's bad commit to its first message
    from_run: Delay  # from the end of the run that showed the regression
    suspicions: int
    confirmed: int
    refuted: int
    undecided: int
    launches: int  # of replays, without recordings
    runs: int  # without recordings

    @property
    def precision(self) -> float | None:
        marked = self.right + self.wrong
        return self.right / marked if marked else None

    @property
    def precision_interval(self) -> tuple[float, float] | None:
        """Returns the 95 % Wilson interval of the precision; None without marks."""
        marked = self.right + self.wrong
        if not marked:
            return None
        share, z2 = self.right / marked, Z_95 * Z_95
        middle = share + z2 / (2 * marked)
        reach = Z_95 * (share * (1 - share) / marked + z2 / (4 * marked * marked)) ** 0.5
        scale = 1 + z2 / marked
        return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)

    @property
    def false_alarms_per_1000(self) -> float | None:
        """Returns the false alarms that people marked per 1,000 verdicts; None if there are no verdicts."""
        return 1000 * self.wrong / self.points if self.points else None

    @property
    def budget_per_1000(self) -> float:
        return FALSE_ALARM_BUDGET

    @property
    def launches_a_run(self) -> float | None:
        return self.launches / self.runs if self.runs else None


def read_score(session: Session, since: dt.datetime | None = None) -> Score:
    """Returns the statistics of verdicts since a time; None selects all verdicts."""
    opened = (*_after(Regression.opened_at, since), is_counted())
    by_direction = select(Regression.direction, func.count()).where(*opened).group_by(Regression.direction)
    directions = {row[0]: row[1] for row in session.execute(by_direction)}
    right, wrong = _marked_regressions(session, since)
    run_right, run_wrong, missed = _marked_runs(session, since)
    by_state = (
        select(Suspicion.state, func.count()).where(*_after(Suspicion.opened_at, since)).group_by(Suspicion.state)
    )
    closed = {row[0]: row[1] for row in session.execute(by_state)}
    launches = select(func.coalesce(func.sum(func.cardinality(Replay.good_us)), 0)).where(
        Replay.origin != "recorded", *_after(Replay.at, since)
    )
    runs = select(func.count(Run.id)).where(Run.origin != "recorded", *_after(Run.finished_at, since))
    return Score(
        since=since,
        points=session.scalar(select(func.count(Verdict.run_id)).where(*_after(Verdict.judged_at, since))) or 0,
        regressions=directions.get("regression", 0),
        improvements=directions.get("improvement", 0),
        right=right + run_right,
        wrong=wrong + run_wrong,
        missed=missed,
        from_commit=_delay(session, Commit.committed_at, since),
        from_run=_delay(session, Run.finished_at, since),
        suspicions=sum(closed.values()),
        confirmed=closed.get("confirmed", 0),
        refuted=closed.get("refuted", 0),
        undecided=closed.get("undecided", 0),
        launches=session.scalar(launches) or 0,
        runs=session.scalar(runs) or 0,
    )


def _marked_regressions(session: Session, since: dt.datetime | None) -> tuple[int, int]:
    newest = (
        select(Mark.right)
        .join(Regression, Regression.id == Mark.regression_id)
        .where(*_after(Regression.opened_at, since))
        .ext(distinct_on(Mark.regression_id))
        .order_by(Mark.regression_id, Mark.at.desc(), Mark.id.desc())
        .subquery()
    )
    query = select(_count(newest.c.right), _count(~newest.c.right)).select_from(newest)
    right, wrong = session.execute(query).one()
    return right, wrong


def _marked_runs(session: Session, since: dt.datetime | None) -> tuple[int, int, int]:
    """Returns three numbers of marked runs: changes marked right, changes marked wrong, and missed changes."""
    theirs = aliased(Mark)
    # Runs of a regression that has a mark itself do not count again.
    of_marked = exists().where(
        RegressionSeries.run_id == Mark.run_id, theirs.regression_id == RegressionSeries.regression_id
    )
    newest = (
        select(Mark.right, Verdict.verdict.in_(("regression", "improvement")).label("saw"))
        .join(Verdict, Verdict.run_id == Mark.run_id)
        .where(*_after(Verdict.judged_at, since), ~of_marked)
        .ext(distinct_on(Mark.run_id))
        .order_by(Mark.run_id, Mark.at.desc(), Mark.id.desc())
        .subquery()
    )
    saw, is_right = newest.c.saw, newest.c.right
    query = select(_count(saw & is_right), _count(saw & ~is_right), _count(~saw & ~is_right)).select_from(newest)
    right, wrong, missed = session.execute(query).one()
    return right, wrong, missed


def _delay(session: Session, start: ColumnElement[dt.datetime] | Any, since: dt.datetime | None) -> Delay:
    """Returns statistics of the hours from `start` to a regression's first message."""
    reported = (
        select(
            Regression.id, (func.extract("epoch", func.min(Message.sent_at) - func.min(start)) / 3600).label("hours")
        )
        .join(Message, Message.regression_id == Regression.id)
        .join(Commit, Commit.id == Regression.bad_commit_id)
        .join(RegressionSeries, RegressionSeries.regression_id == Regression.id)
        .join(Run, Run.id == RegressionSeries.run_id)
        .where(
            Regression.direction == "regression",
            Message.kind == "opened",
            Message.sent_at.is_not(None),
            *_after(Regression.opened_at, since),
        )
        .group_by(Regression.id)
        .subquery()
    )
    row = session.execute(
        select(
            func.count(),
            func.percentile_cont(0.5).within_group(reported.c.hours),
            func.percentile_cont(0.9).within_group(reported.c.hours),
        ).select_from(reported)
    ).one()
    return Delay(row[0], *(None if hours is None else float(hours) for hours in row[1:]))


def _after(column: Any, since: dt.datetime | None) -> list[ColumnElement[bool]]:
    return [] if since is None else [column >= since]


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))
