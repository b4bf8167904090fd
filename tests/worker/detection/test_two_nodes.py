"""Two nodes, or two periods of one, from made times of identical machine code, with the canaries as control."""

import pytest

from tilewatch.worker.detection.two_nodes import Kind, NodeSide, NodeTime, compare_nodes

WELL = ((220.0, 135.0),) * 4


def side(*times_us: float, code: str = "code", canaries: tuple[tuple[float, float], ...] = WELL) -> NodeSide:
    return NodeSide(tuple(NodeTime("gemm", "1x1", code, each) for each in times_us), canaries)


@pytest.mark.parametrize(
    ("b_us", "kind"),
    [
        ((103.0, 103.0), "slower"),
        ((97.0, 97.0), "faster"),
        ((100.1, 100.2), "as fast"),
        ((101.0, 101.0), "undecided"),
        ((90.0, 103.0, 103.0, 116.0), "undecided"),
    ],
)
def test_what_differs_by_more_than_two_well_gpus_is_a_change(b_us: tuple[float, ...], kind: Kind) -> None:
    (change,) = compare_nodes(side(100.0, 100.0), side(*b_us)).changes
    assert change.kind == kind
    assert change.low < change.change < change.high
    assert change.runs == (2, len(b_us))


def test_one_run_on_each_side_leaves_a_wider_interval() -> None:
    (one,), (four,) = (compare_nodes(side(*(100.0,) * n), side(*(102.0,) * n)).changes for n in (1, 4))
    assert one.high - one.low == pytest.approx(2 * (four.high - four.low), rel=0.01)


def test_other_machine_code_is_not_compared_and_the_code_with_most_runs_is() -> None:
    assert compare_nodes(side(100.0), side(130.0, code="other")).changes == ()
    a, b = side(100.0, 100.0), side(100.0, 100.0)
    more_a = NodeSide((*side(50.0, code="rare").times, *a.times), WELL)
    more_b = NodeSide((*side(70.0, code="rare").times, *b.times), WELL)
    (change,) = compare_nodes(more_a, more_b).changes
    assert change.kind == "as fast"


@pytest.mark.parametrize(
    ("canaries", "equal"),
    [(WELL, True), (((224.0, 135.0),), False), (((220.0, 131.0),), False), ((), False)],
)
def test_the_canaries_are_the_control(canaries: tuple[tuple[float, float], ...], equal: bool) -> None:
    assert compare_nodes(side(100.0), side(100.0, canaries=canaries)).is_control_equal is equal
