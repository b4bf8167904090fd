"""What the judge of a scope tells the detector of a series that its night did not measure."""

from tilewatch.db.worker_reads.judging import Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series, SeriesQuestion

HERE: Series = ("gemm", "1x2x3", "n1")
THERE: Series = ("gemm", "1x2x3", "n2")
NEW_AT = 15


def ask_after_new_code(*, is_measured_there: bool) -> tuple[SeriesQuestion, ...]:
    """The questions of a night with new code, when this node did not measure the night before, which had it first."""
    judge, asked = ScopeJudge([HERE, THERE], Policy(), 10_000), tuple[SeriesQuestion, ...]()
    for build in range(NEW_AT + 2):
        measured = [HERE, THERE] if build != NEW_AT else [THERE] if is_measured_there else []
        points = [Point(build, build, *each, "toolchain", 100.0, 99.9, 100.1, None, None) for each in measured]
        codes = {HERE[:2]: "old" if build < NEW_AT else "new"} if points else {}
        judge.add_night(build, build, points, codes)
        asked = judge.settle(lambda _: None)
        judge.settle(lambda _: Launches())  # nobody can be asked
    return asked


def test_code_that_another_node_measured_first_is_not_new_on_this_node() -> None:
    assert HERE not in {each.series for each in ask_after_new_code(is_measured_there=True)}
    assert HERE in {each.series for each in ask_after_new_code(is_measured_there=False)}
