"""A confirmed change becomes a regression, or the recovery of one: its cause is named and its series joins the others.

Thin: what explains it is decided in explain.py, what belongs together in db/lifecycle/regression_causes.py.
"""

from collections.abc import Sequence
from math import expm1

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import regression_causes
from tilewatch.db.lifecycle.regression_causes import Cause, ChangedSeries, OpenedRegression
from tilewatch.db.step_queries import winners
from tilewatch.db.step_queries.judging import Point, Scope
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging import explain, node_comparison
from tilewatch.worker.judging.compiler_cause import Doubt
from tilewatch.worker.judging.explain import Explanation

UNEXPLAINED = Explanation("unknown", "replays of old and new code differ, and no earlier run is left to compare", ())


def confirmed(
    session: Session,
    scope: Scope,
    *,
    point: Point,
    good_run_id: int | None,
    suspicion_id: int | None,
    alert: ConfirmedChange,
    span: tuple[int, int],
    besides: Sequence[str] = (),
) -> tuple[str, OpenedRegression | None]:
    """What the verdict says of it, and the regression it is part of; None where it took an older one back.

    `besides` are facts that the runs do not show, such as what the compiler did.
    """
    moved = _moved(scope, point, good_run_id, suspicion_id, alert.size, alert.error)
    low, high = moved.low, moved.high
    told = f"replays of old and new code differ by {alert.size:+.1%} ({low:+.1%} to {high:+.1%})"
    back = regression_causes.mark_recovered(session, moved, repository=scope.repository, kernel=point.kernel)
    if back:
        return f"{told}: it takes back regression {', '.join(map(str, back))}", None
    why = _explained(session, good_run_id, point.run_id)
    cause = Cause(
        direction="regression" if alert.size > 0 else "improvement",
        category=why.category,
        sentence=why.sentence,
        explanation=(*why.lines, *besides),
        repository=scope.repository,
        kernel=point.kernel,
        good_commit_id=span[0],
        bad_commit_id=span[1],
    )
    return f"{told}; {why.sentence}", regression_causes.open_or_join(session, cause, moved)


def of_toolchain(
    session: Session, scope: Scope, doubt: Doubt, found: Estimate, said: str, suspicion_id: int | None
) -> OpenedRegression:
    """What a replay of one commit under two compilers confirmed: the compiler's doing, whatever commit it met."""
    size = expm1(found.size)
    cause = Cause(
        direction="regression" if size > 0 else "improvement",
        category="toolchain",
        sentence=f"another compiler: {doubt.what}",
        explanation=(said,),
        repository=scope.repository,
        kernel=doubt.point.kernel,
        good_commit_id=doubt.good_commit_id,
        bad_commit_id=scope.commit_id,
        what=doubt.what,
    )
    moved = _moved(scope, doubt.point, doubt.good_run_id, suspicion_id, size, found.error)
    return regression_causes.open_or_join(session, cause, moved)


def of_node(
    session: Session,
    scope: Scope,
    doubt: node_comparison.Doubt,
    told: node_comparison.Told,
    said: str,
    suspicion_id: int | None,
) -> OpenedRegression:
    """What replays of the same cubins on two nodes confirmed: one node, or its new driver, is slower."""
    found = node_comparison.of_driver(doubt, told) or told.node
    assert found is not None, "a node is slower by what its replays said"
    size = expm1(found.size)
    cause = Cause(
        direction="regression",
        category="toolchain" if doubt.driver else "node",
        sentence=said,
        explanation=node_comparison.lines(doubt, told),
        repository=scope.repository,
        kernel=doubt.point.kernel,
        good_commit_id=doubt.before.commit_id,
        bad_commit_id=scope.commit_id,
        what=doubt.what,
    )
    moved = _moved(scope, doubt.point, doubt.before.run_id, suspicion_id, size, found.error)
    return regression_causes.open_or_join(session, cause, moved)


def node_recovered(
    session: Session, scope: Scope, doubt: node_comparison.Doubt, found: Estimate, suspicion_id: int | None
) -> None:
    """Replays of the same cubins say that two nodes, of which people were told, are as fast as each other again."""
    assert doubt.told_size is not None
    back = found.size - doubt.told_size
    moved = _moved(scope, doubt.point, doubt.before.run_id, suspicion_id, back, found.error)
    regression_causes.mark_recovered(
        session, moved, repository=scope.repository, kernel=doubt.point.kernel, of_node=True
    )


def _moved(
    scope: Scope, point: Point, good_run_id: int | None, suspicion_id: int | None, size: float, error: float
) -> ChangedSeries:
    return ChangedSeries(
        problem=point.problem,
        gpu_model=scope.gpu_model,
        run_id=point.run_id,
        good_run_id=good_run_id,
        suspicion_id=suspicion_id,
        size=size,
        low=size - 1.96 * error,
        high=size + 1.96 * error,
    )


def _explained(session: Session, good_run_id: int | None, bad_run_id: int) -> Explanation:
    if good_run_id is None:
        return UNEXPLAINED
    return explain.of_replayed(
        winners.read_run_facts(session, good_run_id), winners.read_run_facts(session, bad_run_id)
    )
