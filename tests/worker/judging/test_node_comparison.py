"""What replays on two nodes say of the node, its driver and the code: both sides of what is believed."""

from dataclasses import replace
from math import exp, log

import pytest

from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import NightBefore, Point, ReplayFact
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.judging.node_comparison import (
    NodeAnswer,
    NodeSuspicion,
    compare,
    estimate_driver,
    is_slower,
    write_lines,
    write_sentence,
)
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

POLICY = Policy()
SIDE = BuildSide(1, "a" * 40, 1, {"tile_m": 64}, True, None)
QUESTION = BuildQuestion("key", "gemm", "1x2x3", "sim", "sm_90", "simulated", "node", 0, 8, SIDE, SIDE)
POINT = Point(1, 2, "gemm", "1x2x3", "n2", "toolchain", 105.0, 104.9, 105.1, None, None)
N1, N2 = (NodeGpu(host, f"GPU-{host}", "580.1") for host in ("n1", "n2"))
OF_NODE = NodeSuspicion(POINT, NightBefore(1, 1, "a" * 40, 100.0), N1, N2, 0.05, False, None, 0.0, (QUESTION, QUESTION))
UNMOVED = "+0.0% (-0.1% to +0.1%)"
OF_DRIVER = replace(OF_NODE, driver="580.1 -> 590.2", apart=log(1.01))


def sized(share: float, error: float = 0.0005) -> Estimate:
    return Estimate(log(1.0 + share), error, 8)


def test_both_codes_are_compared_on_each_node_and_the_old_code_between_the_nodes() -> None:
    there, here = (
        ReplayFact("gemm", "1x2x3", 1, 2, 1, 2, "old", "new", (old,) * 8, (new,) * 8, None)
        for old, new in ((100.0, 102.0), (110.0, 121.0))
    )
    answer = compare(there, here, same_code=False)
    assert answer.node is not None
    assert answer.code is not None
    assert [exp(each.size) for each in (answer.node, *answer.code)] == pytest.approx([1.1, 1.02, 1.1])
    same = compare(there, here, same_code=True)
    assert (same.node, same.code) == (answer.node, None)


def test_a_new_driver_is_charged_with_the_difference_that_the_nodes_did_not_have_before() -> None:
    size = estimate_driver(OF_DRIVER, NodeAnswer(sized(0.05, 0.004), None))
    assert size is not None
    assert (exp(size.size), size.error, size.launches) == (pytest.approx(1.05 / 1.01), pytest.approx(0.005), 8)
    assert estimate_driver(OF_DRIVER, NodeAnswer(None, None)) is None
    assert estimate_driver(OF_NODE, NodeAnswer(sized(0.05), None)) is None


@pytest.mark.parametrize(
    ("suspicion", "node", "slower"),
    [
        (OF_NODE, sized(0.0101), True),
        (OF_NODE, sized(0.0099), False),
        (OF_NODE, sized(-0.05), False),
        (OF_NODE, Estimate(0.0371, 0.01, 8), True),
        (OF_NODE, Estimate(3.7 / 64, 1 / 64, 8), True),
        (OF_NODE, Estimate(0.01, 0.0001, 8), True),
        (OF_NODE, Estimate(0.0369, 0.01, 8), False),
        (OF_NODE, None, False),
        (OF_DRIVER, sized(0.03), True),
        (OF_DRIVER, sized(0.019), False),
        (OF_DRIVER, sized(-0.03), False),
    ],
)
def test_a_node_or_its_driver_is_slower_by_one_per_cent_that_is_sure(
    suspicion: NodeSuspicion, node: Estimate | None, slower: bool
) -> None:
    answer = NodeAnswer(node, None)
    assert is_slower(suspicion, answer, POLICY) == slower
    if suspicion is OF_NODE:
        assert answer.is_node(POLICY) == (slower or node == sized(-0.05))


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        (None, (False, False)),
        ((sized(0.0031), sized(-0.0031)), (True, True)),
        ((sized(0.0029), sized(-0.0031)), (False, True)),
        ((sized(0.0031), sized(0.0031, 0.01)), (True, False)),
    ],
)
def test_code_changed_on_a_node_by_the_least_change_that_matters(
    code: tuple[Estimate, Estimate] | None, changed: tuple[bool, bool]
) -> None:
    assert NodeAnswer(None, code).changed(POLICY) == changed


@pytest.mark.parametrize(
    ("suspicion", "answer", "sentence"),
    [
        (OF_NODE, NodeAnswer(None, None, "n1 went away"), "node against node could not be replayed: n1 went away"),
        (
            OF_NODE,
            NodeAnswer(sized(0.05), None),
            "node n2 is 5.0% slower than n1, the code is not: it is the same cubin",
        ),
        (
            OF_NODE,
            NodeAnswer(sized(-0.05), None),
            "node n2 is 5.0% faster than n1, the code is not: it is the same cubin",
        ),
        (
            OF_NODE,
            NodeAnswer(sized(0.0), None),
            f"node n2 is as fast as n1 ({UNMOVED}), with the same cubin",
        ),
        (
            OF_DRIVER,
            NodeAnswer(sized(0.01), None),
            "the driver (580.1 -> 590.2) is no slower: n2 and n1, which has the old one, differ as before, "
            "with the same cubin",
        ),
        (
            OF_DRIVER,
            NodeAnswer(sized(1.01 * 1.05 - 1), None),
            "the new driver (580.1 -> 590.2) is 5.0% slower on n2 than the old one, still on n1, "
            "the code is not: it is the same cubin",
        ),
        (
            OF_NODE,
            NodeAnswer(sized(0.0), (sized(-0.05), sized(-0.04))),
            f"node n2 is as fast as n1 ({UNMOVED}), "
            "the code is faster on both nodes: -5.0% (-5.1% to -4.9%) on n1, -4.0% (-4.1% to -3.9%) on n2",
        ),
        (
            OF_NODE,
            NodeAnswer(sized(0.05), (sized(0.04), sized(0.0))),
            "node n2 is 5.0% slower than n1, "
            f"the code differs on n1 alone: +4.0% (+3.9% to +4.1%) on n1, {UNMOVED} on n2",
        ),
        (
            OF_NODE,
            NodeAnswer(sized(0.0), (sized(0.0), sized(0.0))),
            f"node n2 is as fast as n1 ({UNMOVED}), the code is as fast: {UNMOVED} on n1, {UNMOVED} on n2",
        ),
    ],
)
def test_the_sentence_names_the_node_or_its_driver_and_then_the_code(
    suspicion: NodeSuspicion, answer: NodeAnswer, sentence: str
) -> None:
    assert write_sentence(suspicion, answer, POLICY) == sentence


def test_the_lines_name_the_cubin_both_codes_and_how_the_nodes_differed_before() -> None:
    assert write_lines(OF_NODE, NodeAnswer(None, None, "n1 went away")) == ()
    same = replace(OF_NODE, same_code=True)
    assert write_lines(same, NodeAnswer(sized(0.05), None)) == (
        "the same cubin on both nodes, 8 launches each: +5.0% (+4.9% to +5.1%) on n2",
    )
    assert write_lines(OF_DRIVER, NodeAnswer(sized(0.05), (sized(0.02), sized(0.03)))) == (
        "the old cubin on both nodes, 8 launches each: +5.0% (+4.9% to +5.1%) on n2",
        "new code against old on n1: +2.0% (+1.9% to +2.1%)",
        "new code against old on n2: +3.0% (+2.9% to +3.1%)",
        "before that, the time on n2 was +1.0% from that on n1",
    )


@pytest.mark.parametrize(
    ("suspicion", "cause", "is_reported"),
    [
        (OF_NODE, "n1 and n2", True),
        (OF_NODE, "n2 and n3", False),
        (OF_NODE, "driver 570 -> 580.1 on n1", True),
        (OF_NODE, "driver 570 -> 580.1 on n2", True),
        (OF_NODE, "driver 570 -> 580.1 on n3", False),
        (OF_NODE, "something on n2", False),
        (OF_DRIVER, "driver 580.1 -> 590.2 on n2", True),
        (OF_DRIVER, "n1 and n2", False),
    ],
)
def test_a_suspicion_is_reported_once_for_both_nodes_or_for_a_driver_of_either(
    suspicion: NodeSuspicion, cause: str, is_reported: bool
) -> None:
    assert suspicion.is_reported({"other": 0.1, cause: 0.05}) == is_reported
    assert replace(OF_NODE, there=N2, here=N1).what == "n1 and n2", "either may be the slower one"


def test_the_reason_of_a_suspicion_says_which_replays_are_for() -> None:
    assert OF_NODE.reason == "the time is +5.0% from that on n1, and n2 measured it"
    assert OF_DRIVER.reason == "the time moved +5.0% and so did the driver of n2: 580.1 -> 590.2"
    assert replace(OF_NODE, reported_size=0.05).reason == "n2 is as fast as n1 again, which is asked of both"
