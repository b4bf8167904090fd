"""Opens one regression for each cause, and resolves a regression after its series have recovered."""

from dataclasses import dataclass
from math import log1p
from typing import Literal

from sqlalchemy import ScalarSelect, and_, exists, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from tilewatch.db.lifecycle.regressions import ITSELF, add_event, add_remark, change_state, lock
from tilewatch.db.models import OPEN_REGRESSION, Commit, Regression, RegressionSeries, Run, Sweep
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.query_parts import committed_runs, take_turns
from tilewatch.text import short_sha

Direction = Literal["regression", "improvement"]
Category = Literal["code", "toolchain", "node", "baseline", "search_space", "unknown"]

RECOVERED_SHARE = 0.6
"""The least share of a regression's size by which a series must have improved to count as recovered."""


@dataclass(frozen=True)
class Cause:
    """The cause of a change after `good_commit_id`, up to and including `bad_commit_id`."""

    direction: Direction
    category: Category
    sentence: str
    explanation: tuple[str, ...]
    repository: str
    kernel: str
    good_commit_id: int
    bad_commit_id: int
    what: str = ""  # the compilers or nodes that caused it, if no commit did


@dataclass(frozen=True)
class ChangedSeries:
    """A series that a cause changed. `size` is the relative change, with its 95 % interval."""

    problem: str
    gpu_model: str
    run_id: int
    good_run_id: int | None
    suspicion_id: int | None
    size: float
    low: float
    high: float


@dataclass(frozen=True)
class OpenedRegression:
    """The regression of a confirmed change, and whether it is new."""

    id: int
    created: bool


def open_or_join(session: Session, cause: Cause, moved: ChangedSeries) -> OpenedRegression:
    """Opens a regression for a cause, or adds the series to the cause's regression. Repeating changes nothing."""
    # Two judges may find one cause at once. If the lock fails, the unique key prevents a second regression.
    take_turns(session, f"regressions of {cause.repository} {cause.kernel}")
    regression = _same_cause(session, cause)
    if regression is None:
        named = ("direction", "repository", "kernel", "category", "good_commit_id", "bad_commit_id")
        row = {name: getattr(cause, name) for name in named}
        row |= {"key": _key(session, cause), "cause": cause.sentence, "explanation": list(cause.explanation)}
        row |= {"size": moved.size, "low": moved.low, "high": moved.high}
        regression_id, created = find_or_add(session, Regression, ("key",), row)
    else:
        regression_id, created = regression.id, False
    joined = _add_series(session, regression_id, cause.kernel, moved)
    # A node or a toolchain can become slow again without a commit.
    if not joined and cause.category in ("node", "toolchain"):
        joined = _is_slow_again(session, regression_id, moved)
    if created:
        add_event(session, regression_id, ITSELF, "open", None, "new", cause.sentence)
    elif joined:
        _join(session, regression_id, cause, moved)
    return OpenedRegression(regression_id, created)


def add_to_explanation(session: Session, regression_id: int, sentence: str) -> None:
    regression = session.get_one(Regression, regression_id)
    regression.explanation = [*regression.explanation, sentence]


def mark_recovered(
    session: Session, moved: ChangedSeries, *, repository: str, kernel: str, of_node: bool = False
) -> list[int]:
    """Marks a series as recovered in its open regressions, and returns the ids of these regressions."""
    series = aliased(RegressionSeries)
    query = (
        select(Regression, series)
        .join(series, series.regression_id == Regression.id)
        .where(
            Regression.repository == repository,
            (Regression.category == "node") == of_node,  # a commit cannot repair a node
            Regression.state.in_(OPEN_REGRESSION),
            series.kernel == kernel,
            series.problem == moved.problem,
            series.gpu_model == moved.gpu_model,
            series.recovered_at.is_(None),
            series.run_id != moved.run_id,
            # A backfill may measure old commits. They repair only series that became slow at or before them.
            true() if of_node else _select_position(series.run_id) <= _select_position(moved.run_id),
            # Of logarithms: a kernel that became twice as slow and is repaired changes by +100 % and by -50 %.
            -log1p(moved.size) / func.nullif(func.ln(1.0 + func.greatest(series.size, 0.0)), 0.0) >= RECOVERED_SHARE,
        )
        .order_by(Regression.id)
        .with_for_update()
    )
    rows = session.execute(query).all()
    mended_at = _describe_commit(session, moved.run_id) if rows else ""
    for regression, one in rows:
        session.execute(
            update(RegressionSeries).where(RegressionSeries.id == one.id).values(recovered_at=func.clock_timestamp())
        )
        sentence = f"{one.problem} on {one.gpu_model} recovered by {moved.size:+.1%} at {mended_at}"
        add_event(session, regression.id, ITSELF, "recover", regression.state, regression.state, sentence)
        left = exists().where(RegressionSeries.regression_id == regression.id, RegressionSeries.recovered_at.is_(None))
        if not session.scalar(select(left)):
            change_state(session, regression, "resolve", ITSELF, "every series recovered")
    return [regression.id for regression, _ in rows]


def _select_position(run_id: InstrumentedAttribute[int] | int) -> ScalarSelect[int]:
    return committed_runs(select(Commit.position)).where(Run.id == run_id).scalar_subquery()


def _describe_commit(session: Session, run_id: int) -> str:
    """Returns the hash and the subject of a run's commit."""
    of_run = select(Sweep.commit_id).join(Run, Run.sweep_id == Sweep.id).where(Run.id == run_id).scalar_subquery()
    sha, subject = session.execute(select(Commit.sha, Commit.subject).where(Commit.id == of_run)).one()
    return f"{short_sha(sha)} {subject}"


def _same_cause(session: Session, cause: Cause) -> Regression | None:
    """Returns the newest regression with the same cause; None if there is none."""
    good, bad, theirs_good, theirs_bad = (aliased(Commit) for _ in range(4))
    query = (
        select(Regression)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .join(theirs_good, theirs_good.id == cause.good_commit_id)
        .join(theirs_bad, theirs_bad.id == cause.bad_commit_id)
        .where(
            Regression.repository == cause.repository,
            Regression.kernel == cause.kernel,
            Regression.direction == cause.direction,
            Regression.category == cause.category,
            Regression.key.endswith(f":{cause.what}", autoescape=True),
            # Two series rarely narrow a change to equal ranges, so their ranges need only overlap.
            or_(
                Regression.category == "node",
                and_(good.position < theirs_bad.position, theirs_good.position < bad.position),
            ),
        )
        .order_by(Regression.id.desc())
        .limit(1)
        .with_for_update(of=Regression)
    )
    return session.scalars(query).one_or_none()


def _key(session: Session, cause: Cause) -> str:
    """Returns the unique key of a new regression."""
    # Both ends of the range, because another regression may have the same last commit after a bisection.
    good, bad = (session.get_one(Commit, id_).sha for id_ in (cause.good_commit_id, cause.bad_commit_id))
    return ":".join((cause.direction, cause.category, cause.repository, cause.kernel, good, bad, cause.what))


def _add_series(session: Session, regression_id: int, kernel: str, moved: ChangedSeries) -> bool:
    added = (
        insert(RegressionSeries)
        .values(regression_id=regression_id, kernel=kernel, **vars(moved))
        .on_conflict_do_nothing(constraint="uq_regression_series_series")
        .returning(RegressionSeries.id)
    )
    return session.scalar(added) is not None


def _is_slow_again(session: Session, regression_id: int, moved: ChangedSeries) -> bool:
    """Marks a recovered series as slow again, with its new size. Returns whether it was marked."""
    resolved = exists().where(Regression.id == RegressionSeries.regression_id, Regression.state == "resolved")
    back = session.execute(
        update(RegressionSeries)
        .where(
            RegressionSeries.regression_id == regression_id,
            RegressionSeries.problem == moved.problem,
            RegressionSeries.gpu_model == moved.gpu_model,
            RegressionSeries.run_id != moved.run_id,
            or_(RegressionSeries.recovered_at.is_not(None), resolved),
        )
        .values(recovered_at=None, run_id=moved.run_id, size=moved.size, low=moved.low, high=moved.high)
        .returning(RegressionSeries.id)
    )
    return back.one_or_none() is not None


def _join(session: Session, regression_id: int, cause: Cause, moved: ChangedSeries) -> None:
    """Updates a regression's size and range after a series was added. Reopens a resolved regression."""
    regression = lock(session, regression_id)
    if abs(moved.size) > abs(regression.size):
        regression.size, regression.low, regression.high = moved.size, moved.low, moved.high
    if cause.category != "node":
        for name, narrower in (("good_commit_id", max), ("bad_commit_id", min)):
            ids = (getattr(cause, name), getattr(regression, name))
            by_position = {session.get_one(Commit, each).position: each for each in ids}
            setattr(regression, name, by_position[narrower(by_position)])
    sentence = f"{moved.problem} on {moved.gpu_model} {moved.size:+.1%}"
    add_remark(session, regression, ITSELF, "join", sentence)
    if regression.state == "resolved":
        series, largest_first = RegressionSeries, func.abs(RegressionSeries.size).desc()
        slow = select(series).where(series.regression_id == regression_id, series.recovered_at.is_(None))
        worst = session.scalars(slow.order_by(largest_first).limit(1)).one()
        regression.size, regression.low, regression.high = worst.size, worst.low, worst.high
        change_state(session, regression, "reopen", ITSELF, sentence)
