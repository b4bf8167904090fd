"""Opens a regression for a confirmed change, or ends the regression of a series that recovered."""

from collections.abc import Sequence
from math import expm1, log1p

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import actions, regression_causes
from tilewatch.db.lifecycle.regression_causes import Cause, ChangedSeries
from tilewatch.db.lifecycle.regressions import ITSELF
from tilewatch.db.worker_reads import winners
from tilewatch.db.worker_reads.judging import Point, Scope
from tilewatch.kernels.comparing.code_sentences import write_code_sentences
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.toolchains.toolchain import INSTALLED, is_name
from tilewatch.worker.detection.replay_evidence import Estimate, find_interval
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging import explain, node_comparison
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion
from tilewatch.worker.judging.explain import Explanation
from tilewatch.worker.judging.node_comparison import NodeAnswer, NodeSuspicion

UNEXPLAINED = Explanation("unknown", "replays of old and new code differ; the good commit has no run to compare", ())


def open_for_commit(
    session: Session,
    scope: Scope,
    *,
    store: CubinStore,
    point: Point,
    good_run_id: int | None,
    suspicion_id: int | None,
    alert: ConfirmedChange,
    span: tuple[int, int],
    findings: Sequence[str] = (),
) -> str:
    """Opens, extends or ends a regression after a confirmed change. Returns the reason for the verdict."""
    moved = _moved(scope, point, good_run_id, suspicion_id, alert.size, alert.error)
    difference = f"replays of old and new code differ by {alert.size:+.1%} ({moved.low:+.1%} to {moved.high:+.1%})"
    taken_back = regression_causes.mark_recovered(session, moved, repository=scope.repository, kernel=point.kernel)
    if taken_back:
        return f"{difference}: it takes back regression {', '.join(map(str, taken_back))}"
    explanation = _explain(session, good_run_id, point.run_id)
    cause = Cause(
        direction=alert.direction,
        category=explanation.category,
        sentence=explanation.sentence,
        explanation=(*explanation.lines, *findings),
        repository=scope.repository,
        kernel=point.kernel,
        good_commit_id=span[0],
        bad_commit_id=span[1],
    )
    opened = regression_causes.open_or_join(session, cause, moved)
    if opened.created and good_run_id is not None:
        sentence = _compare_code(session, store, good_run_id, point.run_id)
        if sentence is not None:
            regression_causes.add_to_explanation(session, opened.id, f"code: {sentence}")
    return f"{difference}; {explanation.sentence}"


def open_for_compiler(
    session: Session,
    scope: Scope,
    suspicion: CompilerSuspicion,
    change: Estimate,
    sentence: str,
    suspicion_id: int | None,
) -> None:
    """Opens, extends or ends a regression after a confirmed change by a compiler."""
    size = expm1(change.size)
    moved = _moved(scope, suspicion.point, suspicion.before.run_id, suspicion_id, size, change.error)
    kernel = suspicion.point.kernel
    # A downgrade undoes earlier regressions.
    if regression_causes.mark_recovered(session, moved, repository=scope.repository, kernel=kernel):
        return
    cause = Cause(
        direction="regression" if size > 0 else "improvement",
        category="toolchain",
        sentence=suspicion.compilers.cause,
        explanation=(sentence,),
        repository=scope.repository,
        kernel=kernel,
        good_commit_id=suspicion.before.commit_id,
        bad_commit_id=scope.commit_id,
        what=str(suspicion.compilers),
    )
    opened = regression_causes.open_or_join(session, cause, moved)
    before = suspicion.compilers.toolchain_before
    if opened.created and before is not None and is_name(before):
        asked = {"toolchains": [before, INSTALLED], "repository": scope.repository, "commit": scope.sha}
        key = f"toolchains {scope.repository} {scope.gpu_model} {suspicion.compilers}"
        actions.ask(session, ITSELF, "toolchains", {**asked, "gpus": [scope.gpu_model]}, key)


def open_for_node(
    session: Session,
    scope: Scope,
    suspicion: NodeSuspicion,
    answer: NodeAnswer,
    sentence: str,
    suspicion_id: int | None,
) -> None:
    """Opens a regression for a slower node or driver, or adds the series to the open regression."""
    change = node_comparison.estimate_driver(suspicion, answer) or answer.node
    assert change is not None, "a node is slower by what its replays show"
    cause = Cause(
        direction="regression",
        category="toolchain" if suspicion.driver else "node",
        sentence=sentence,
        explanation=node_comparison.write_lines(suspicion, answer),
        repository=scope.repository,
        kernel=suspicion.point.kernel,
        good_commit_id=suspicion.before.commit_id,
        bad_commit_id=scope.commit_id,
        what=suspicion.what,
    )
    moved = _moved(scope, suspicion.point, suspicion.before.run_id, suspicion_id, expm1(change.size), change.error)
    regression_causes.open_or_join(session, cause, moved)


def close_for_node(
    session: Session, scope: Scope, suspicion: NodeSuspicion, difference: Estimate, suspicion_id: int | None
) -> None:
    """Ends the regression of a slow node that is as fast as another node again."""
    assert suspicion.reported_size is not None
    back = expm1(difference.size - log1p(suspicion.reported_size))
    moved = _moved(scope, suspicion.point, suspicion.before.run_id, suspicion_id, back, difference.error)
    kernel = suspicion.point.kernel
    regression_causes.mark_recovered(session, moved, repository=scope.repository, kernel=kernel, of_node=True)


def _moved(
    scope: Scope, point: Point, good_run_id: int | None, suspicion_id: int | None, size: float, error: float
) -> ChangedSeries:
    low, high = find_interval(size, error)
    return ChangedSeries(
        problem=point.problem,
        gpu_model=scope.gpu_model,
        run_id=point.run_id,
        good_run_id=good_run_id,
        suspicion_id=suspicion_id,
        size=size,
        low=low,
        high=high,
    )


def _compare_code(session: Session, store: CubinStore, good_run_id: int, bad_run_id: int) -> str | None:
    """Describes which source lines make two cubins differ; None without a difference. This takes seconds."""
    found = winners.read_winners_of_runs(session, (good_run_id, bad_run_id))
    if len(found) < 2:
        return None
    keys = (found[good_run_id].content_key, found[bad_run_id].content_key)
    try:
        return write_code_sentences(store, [keys], jobs=1)[keys] or None
    except StoreError:
        return None


def _explain(session: Session, good_run_id: int | None, bad_run_id: int) -> Explanation:
    if good_run_id is None:
        return UNEXPLAINED
    return explain.explain_replayed(*winners.read_pair_facts(session, good_run_id, bad_run_id))
