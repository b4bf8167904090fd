"""Compares replays of the same cubins on two nodes: what the node did, what its driver did, what the code did. Pure.

What differs within a node is the code; what the old cubin shows between the nodes is the node. node_cause.py decides
what is asked.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import expm1, hypot

from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import Point, PreviousRun, ReplayFact
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, estimate_pair
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.queue.replay_job import BuildQuestion

WELL_GPUS_DIFFER = 0.01
"""Two GPUs of a model that are both well may differ by less than this, which is not reported."""

SESSIONS_DIFFER = 0.003
"""Medians of one config lay up to 0.4 % apart in three sessions of one H200: one deviation of how far apart two nodes
were, which is known from single runs."""


@dataclass(frozen=True)
class NodeSuspicion:
    """A series whose time may be the node's. `questions` are to the GPU there (of `before`), then here.

    `moved` is relative. `apart` is how far apart the nodes were before (a logarithm), which only a question about a
    `driver` uses. `reported_size` is by how much one of them was reported to be slower, where it is asked whether that
    is over.
    """

    point: Point
    before: PreviousRun
    there: NodeGpu
    here: NodeGpu
    moved: float
    same_code: bool
    driver: str | None
    apart: float
    questions: tuple[BuildQuestion, BuildQuestion]
    reported_size: float | None = None

    @property
    def what(self) -> str:
        """Tells this cause from others in a regression's key."""
        return f"driver {self.driver} on {self.here.host}" if self.driver else _pair(self.there.host, self.here.host)

    def is_reported(self, causes: Collection[str]) -> bool:
        """Returns True if these two nodes were reported, or a driver that makes one of them slower."""
        hosts = (self.there.host, self.here.host)
        return self.what in causes or any(
            cause.startswith("driver ") and cause.endswith(tuple(f" on {host}" for host in hosts)) for cause in causes
        )

    @property
    def reason(self) -> str:
        if self.reported_size is not None:
            return f"{self.here.host} is as fast as {self.there.host} again, which is asked of both"
        if self.driver:
            return f"the time moved {self.moved:+.1%} and so did the driver of {self.here.host}: {self.driver}"
        return f"the time is {self.moved:+.1%} from that on {self.there.host}, and {self.here.host} measured it"


@dataclass(frozen=True)
class NodeAnswer:
    """The slowdown of the old cubin from there to here, and of the new one against the old on each; logarithms.

    `code` is of there, then of here; None where both sides are one machine code. `failure` says why nothing is known.
    """

    node: Estimate | None
    code: tuple[Estimate, Estimate] | None
    failure: str | None = None

    def is_node(self, policy: Policy) -> bool:
        return self.node is not None and _is_believed(self.node, policy, WELL_GPUS_DIFFER)

    def changed(self, policy: Policy) -> tuple[bool, bool]:
        """Returns True if the code differs there, and here."""
        if self.code is None:
            return False, False
        there, here = (_is_believed(each, policy, policy.min_change) for each in self.code)
        return there, here


def compare(there: ReplayFact, here: ReplayFact, *, same_code: bool) -> NodeAnswer:
    """Launches of two GPUs have nothing in common, so their differences are taken in any order. Where the code changed,
    the old one says how far apart the nodes are: the new one may suit one of them less."""
    node = replay_answers.differences(list(zip(there.good_us, here.good_us, strict=False)))
    if same_code:
        return NodeAnswer(estimate_pair(node, 0.0), None)
    code = [
        estimate_pair(replay_answers.differences(list(zip(each.good_us, each.bad_us, strict=True))), 0.0)
        for each in (there, here)
    ]
    return NodeAnswer(estimate_pair(node, 0.0), (code[0], code[1]))


def of_driver(suspicion: NodeSuspicion, answer: NodeAnswer) -> Estimate | None:
    """Returns the difference less what it was before; None where no driver changed or the replays failed."""
    if suspicion.driver is None or answer.node is None:
        return None
    return Estimate(answer.node.size - suspicion.apart, hypot(answer.node.error, SESSIONS_DIFFER), answer.node.launches)


def is_slower(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> bool:
    """Returns True if the node (or its new driver) is slower, which is reported."""
    size = of_driver(suspicion, answer) or answer.node
    return size is not None and size.size > 0 and _is_believed(size, policy, WELL_GPUS_DIFFER)


def sentence(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    """Writes the sentence about the node, then the one about the code."""
    if answer.node is None:
        return f"node against node could not be replayed: {answer.failure}"
    return f"{_of_node(suspicion, answer, policy)}, {_of_code(suspicion, answer, policy)}"


def lines(suspicion: NodeSuspicion, answer: NodeAnswer) -> tuple[str, ...]:
    """Returns the numbers behind the sentence, for people who want to see them."""
    if answer.node is None:
        return ()
    here, there = suspicion.here.host, suspicion.there.host
    cubin = "the same cubin" if suspicion.same_code else "the old cubin"
    facts = [f"{cubin} on both nodes, {answer.node.launches} launches each: {_size(answer.node)} on {here}"]
    if answer.code is not None:
        facts += [
            f"new code against old on {host}: {_size(each)}"
            for host, each in zip((there, here), answer.code, strict=True)
        ]
    if suspicion.driver is not None:
        facts.append(f"before that, {here} took {expm1(suspicion.apart):+.1%} of what {there} took")
    return tuple(facts)


def _of_node(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    here, there, driver = suspicion.here.host, suspicion.there.host, suspicion.driver
    size = of_driver(suspicion, answer)
    if size is not None:
        if not _is_believed(size, policy, WELL_GPUS_DIFFER):
            return f"the driver ({driver}) is no slower: {here} is to {there}, which has the old one, as before"
        return f"the new driver ({driver}) is {_much(size)} {_word(size)} on {here} than the old one, still on {there}"
    assert answer.node is not None, "sentence() is asked only after replays that were held"
    if not answer.is_node(policy):
        return f"node {here} is as fast as {there} ({_size(answer.node)})"
    return f"node {here} is {_much(answer.node)} {_word(answer.node)} than {there}"


def _of_code(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    node = of_driver(suspicion, answer) or answer.node
    is_node_alone = node is not None and _is_believed(node, policy, WELL_GPUS_DIFFER)
    if answer.code is None:
        return "the code is not: it is the same cubin" if is_node_alone else "with the same cubin"
    there, here = answer.changed(policy)
    hosts = suspicion.there.host, suspicion.here.host
    sizes = [f"{_size(each)} on {host}" for each, host in zip(answer.code, hosts, strict=True)]
    if there and here:
        return f"the code is {_word(answer.code[1])} on both nodes: {', '.join(sizes)}"
    if there or here:
        return f"the code differs on {hosts[here]} alone: {', '.join(sizes)}"
    return f"the code is {'not' if is_node_alone else 'as fast'}: {', '.join(sizes)}"


def _is_believed(size: Estimate, policy: Policy, least: float) -> bool:
    return abs(size.deviations) >= policy.believed_deviations and abs(size.size) >= least


def _pair(one: str, other: str) -> str:
    """Names two nodes in one order: that one is slower is one cause, from whichever side it is seen."""
    return " and ".join(sorted((one, other)))


def _word(size: Estimate) -> str:
    return "slower" if size.size > 0 else "faster"


def _much(size: Estimate) -> str:
    return f"{abs(expm1(size.size)):.1%}"


def _size(size: Estimate) -> str:
    low, high = size.size - 1.96 * size.error, size.size + 1.96 * size.error
    return f"{expm1(size.size):+.1%} ({expm1(low):+.1%} to {expm1(high):+.1%})"
