"""Computes how much of a change comes from the node, the driver and the code. Replays on two nodes give the times."""

from collections.abc import Collection
from dataclasses import dataclass
from math import expm1, hypot

from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import NightBefore, Point, ReplayFact
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, compute_log_ratios, estimate_pair
from tilewatch.worker.queue.replay_job import BuildQuestion

WELL_GPUS_DIFFER = 0.01
"""The smallest difference between two nodes that is reported. Two healthy GPUs of a model differ by less."""

SESSIONS_DIFFER = 0.003
"""The standard deviation of the difference between two nodes if each has only one earlier run. The medians of one
config were up to 0.4 % apart in three sessions of one H200."""


@dataclass(frozen=True)
class NodeSuspicion:
    """A change of a time that the node `here` or its new driver may have caused. `there` is a node to compare with."""

    point: Point
    before: NightBefore
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
        """Returns the name of the suspected cause: two nodes, or a driver on a node."""
        # In alphabetical order, because either node may be the slower one.
        hosts = sorted((self.there.host, self.here.host))
        return f"driver {self.driver} on {self.here.host}" if self.driver else " and ".join(hosts)

    def is_reported(self, causes: Collection[str]) -> bool:
        """Returns whether `causes` already contains these two nodes, or a new driver on one of these nodes."""
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
    """Logarithms of time ratios from replays: `node` is here / there, `code` is new / old code on (there, here)."""

    node: Estimate | None
    code: tuple[Estimate, Estimate] | None
    failure: str | None = None

    def is_node(self, policy: Policy) -> bool:
        return self.node is not None and _is_believed(self.node, policy, WELL_GPUS_DIFFER)

    def changed(self, policy: Policy) -> tuple[bool, bool]:
        """Returns whether the new code changed the time, as (on node `there`, on node `here`)."""
        if self.code is None:
            return False, False
        there, here = (_is_believed(each, policy, policy.min_change) for each in self.code)
        return there, here


def compare(there: ReplayFact, here: ReplayFact, *, same_code: bool) -> NodeAnswer:
    """Returns the time differences between two nodes and, unless `same_code`, between old and new code."""
    # The old cubin, because a node may be slower with the new code alone.
    node = compute_log_ratios(there.good_us, here.good_us)
    if same_code:
        return NodeAnswer(estimate_pair(node, 0.0), None)
    code = [estimate_pair(compute_log_ratios(each.good_us, each.bad_us), 0.0) for each in (there, here)]
    return NodeAnswer(estimate_pair(node, 0.0), (code[0], code[1]))


def estimate_driver(suspicion: NodeSuspicion, answer: NodeAnswer) -> Estimate | None:
    """Returns how much a new driver changed the time; None without a new driver or a result."""
    if suspicion.driver is None or answer.node is None:
        return None
    return Estimate(answer.node.size - suspicion.apart, hypot(answer.node.error, SESSIONS_DIFFER), answer.node.launches)


def is_slower(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> bool:
    """Returns whether the node `here` or its new driver is slower by enough to be reported."""
    size = estimate_driver(suspicion, answer) or answer.node
    return size is not None and size.size > 0 and _is_believed(size, policy, WELL_GPUS_DIFFER)


def write_sentence(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    """Returns the results of the replays as a sentence, first about the node, then about the code."""
    if answer.node is None:
        return f"node against node could not be replayed: {answer.failure}"
    return f"{_write_about_node(suspicion, answer, policy)}, {_write_about_code(suspicion, answer, policy)}"


def write_lines(suspicion: NodeSuspicion, answer: NodeAnswer) -> tuple[str, ...]:
    """Returns the measured differences as lines of text; empty if the replays failed."""
    if answer.node is None:
        return ()
    here, there = suspicion.here.host, suspicion.there.host
    cubin = "the same cubin" if suspicion.same_code else "the old cubin"
    facts = [f"{cubin} on both nodes, {answer.node.launches} launches each: {_write_size(answer.node)} on {here}"]
    if answer.code is not None:
        facts += [
            f"new code against old on {host}: {_write_size(each)}"
            for host, each in zip((there, here), answer.code, strict=True)
        ]
    if suspicion.driver is not None:
        facts.append(f"before that, the time on {here} was {expm1(suspicion.apart):+.1%} from that on {there}")
    return tuple(facts)


def _write_about_node(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    here, there, driver = suspicion.here.host, suspicion.there.host, suspicion.driver
    size = estimate_driver(suspicion, answer)
    if size is not None:
        if not _is_believed(size, policy, WELL_GPUS_DIFFER):
            return f"the driver ({driver}) is no slower: {here} and {there}, which has the old one, differ as before"
        return f"the new driver ({driver}) is {_slowdown(size)} on {here} than the old one, still on {there}"
    assert answer.node is not None, "the replays did not fail"
    if not answer.is_node(policy):
        return f"node {here} is as fast as {there} ({_write_size(answer.node)})"
    return f"node {here} is {_slowdown(answer.node)} than {there}"


def _write_about_code(suspicion: NodeSuspicion, answer: NodeAnswer, policy: Policy) -> str:
    node = estimate_driver(suspicion, answer) or answer.node
    is_node_alone = node is not None and _is_believed(node, policy, WELL_GPUS_DIFFER)
    if answer.code is None:
        return "the code is not: it is the same cubin" if is_node_alone else "with the same cubin"
    there, here = answer.changed(policy)
    hosts = suspicion.there.host, suspicion.here.host
    sizes = [f"{_write_size(each)} on {host}" for each, host in zip(answer.code, hosts, strict=True)]
    if there and here:
        return f"the code is {_slower(answer.code[1])} on both nodes: {', '.join(sizes)}"
    if there or here:
        return f"the code differs on {hosts[here]} alone: {', '.join(sizes)}"
    return f"the code is {'not' if is_node_alone else 'as fast'}: {', '.join(sizes)}"


def _is_believed(size: Estimate, policy: Policy, least: float) -> bool:
    return abs(size.deviations) >= policy.believed_deviations and abs(size.size) >= least


def _slower(size: Estimate) -> str:
    return "slower" if size.size > 0 else "faster"


def _slowdown(size: Estimate) -> str:
    return f"{abs(expm1(size.size)):.1%} {_slower(size)}"


def _write_size(size: Estimate) -> str:
    low, high = size.interval
    return f"{expm1(size.size):+.1%} ({expm1(low):+.1%} to {expm1(high):+.1%})"
