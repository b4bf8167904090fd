"""What replays of the same cubins on two nodes say: of the node, of its driver and of the code. Pure.

What differs within a node is the code; what the old cubin shows between the nodes is the node. Who is asked is decided
in nodes.py.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import expm1, hypot
from typing import Any

from tilewatch.db.step_queries.gpus import NodeGpu
from tilewatch.db.step_queries.judging import Point, PreviousRun, ReplayFact
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, estimate_pair
from tilewatch.worker.judging import replay_answers

WELL_GPUS_DIFFER = 0.01
"""Two GPUs of a model that are both well may differ by less than this, and nobody is told of it."""

SESSIONS_DIFFER = 0.003
"""Medians of one config lay up to 0.4 % apart in three sessions of one H200 (docs/judging.md): one deviation of how
far apart two nodes were, which is known from single runs."""


@dataclass(frozen=True)
class Doubt:
    """A series whose time may be the node's. `payloads` lack what the judge adds to every question: there, then here.

    `apart` is how far apart the nodes were before (a logarithm), which is asked of a `driver` alone. `told_size` is by
    how much people were told that one of them is slower, where it is asked whether that is over.
    """

    point: Point
    before: PreviousRun
    there: NodeGpu
    here: NodeGpu
    moved: float
    same_code: bool
    driver: str | None
    apart: float
    payloads: tuple[dict[str, Any], dict[str, Any]]
    told_size: float | None = None

    @property
    def what(self) -> str:
        """Tells this cause from others in a regression's key."""
        return f"driver {self.driver} on {self.here.host}" if self.driver else _pair(self.there.host, self.here.host)

    def is_known(self, causes: Collection[str]) -> bool:
        """Whether people were told of these two nodes, or of a driver that makes one of them slower."""
        hosts = (self.there.host, self.here.host)
        return self.what in causes or any(
            cause.startswith("driver ") and cause.endswith(tuple(f" on {host}" for host in hosts)) for cause in causes
        )

    @property
    def reason(self) -> str:
        if self.told_size is not None:
            return f"{self.here.host} is as fast as {self.there.host} again, which is asked of both"
        if self.driver:
            return f"the time moved {self.moved:+.1%} and so did the driver of {self.here.host}: {self.driver}"
        return f"the time is {self.moved:+.1%} from that on {self.there.host}, and {self.here.host} measured it"


@dataclass(frozen=True)
class Told:
    """How much slower the old cubin is here than there, and the new one than the old on each; logarithms.

    `code` is of there, then of here; None where both sides are one machine code. `failure` says why nothing is known.
    """

    node: Estimate | None
    code: tuple[Estimate, Estimate] | None
    failure: str | None = None

    def is_node(self, policy: Policy) -> bool:
        return self.node is not None and _is_believed(self.node, policy, WELL_GPUS_DIFFER)

    def changed(self, policy: Policy) -> tuple[bool, bool]:
        """Whether the code differs there, and here."""
        if self.code is None:
            return False, False
        there, here = (_is_believed(each, policy, policy.min_change) for each in self.code)
        return there, here


def compared(there: ReplayFact, here: ReplayFact, *, same_code: bool) -> Told:
    """Launches of two GPUs have nothing in common, so their differences are taken in any order. Where the code changed,
    the old one says how far apart the nodes are: the new one may suit one of them less."""
    node = replay_answers.differences(list(zip(there.good_us, here.good_us, strict=False)))
    if same_code:
        return Told(estimate_pair(node, 0.0), None)
    code = [
        estimate_pair(replay_answers.differences(list(zip(each.good_us, each.bad_us, strict=True))), 0.0)
        for each in (there, here)
    ]
    return Told(estimate_pair(node, 0.0), (code[0], code[1]))


def of_driver(doubt: Doubt, told: Told) -> Estimate | None:
    """What is left of the difference when what it was before is taken off."""
    if doubt.driver is None or told.node is None:
        return None
    return Estimate(told.node.size - doubt.apart, hypot(told.node.error, SESSIONS_DIFFER), told.node.launches)


def is_slower(doubt: Doubt, told: Told, policy: Policy) -> bool:
    """Whether the node (or its new driver) is slower: what people are told of."""
    found = of_driver(doubt, told) or told.node
    return found is not None and found.size > 0 and _is_believed(found, policy, WELL_GPUS_DIFFER)


def sentence(doubt: Doubt, told: Told, policy: Policy) -> str:
    """What the replays on both nodes say, of the node first and then of the code."""
    if told.node is None:
        return f"node against node could not be replayed: {told.failure}"
    return f"{_of_node(doubt, told, policy)}, {_of_code(doubt, told, policy)}"


def lines(doubt: Doubt, told: Told) -> tuple[str, ...]:
    """The numbers behind the sentence, for people who want to see them."""
    if told.node is None:
        return ()
    cubin = "the same cubin" if doubt.same_code else "the old cubin"
    said = [f"{cubin} on both nodes, {told.node.launches} launches each: {_size(told.node)} on {doubt.here.host}"]
    if told.code is not None:
        said += [
            f"new code against old on {board.host}: {_size(each)}"
            for board, each in zip((doubt.there, doubt.here), told.code, strict=True)
        ]
    if doubt.driver is not None:
        said.append(f"before that, {doubt.here.host} took {expm1(doubt.apart):+.1%} of what {doubt.there.host} took")
    return tuple(said)


def _of_node(doubt: Doubt, told: Told, policy: Policy) -> str:
    here, there = doubt.here.host, doubt.there.host
    found = of_driver(doubt, told)
    if found is not None:
        if not _is_believed(found, policy, WELL_GPUS_DIFFER):
            return f"the driver ({doubt.driver}) is no slower: {here} is to {there}, which has the old one, as before"
        word = "slower" if found.size > 0 else "faster"
        return f"the new driver ({doubt.driver}) is {_much(found)} {word} on {here} than the old one, still on {there}"
    assert told.node is not None, "asked of replays that were held"
    if not told.is_node(policy):
        return f"node {here} is as fast as {there} ({_size(told.node)})"
    return f"node {here} is {_much(told.node)} {'slower' if told.node.size > 0 else 'faster'} than {there}"


def _of_code(doubt: Doubt, told: Told, policy: Policy) -> str:
    found = of_driver(doubt, told) or told.node
    alone = found is not None and _is_believed(found, policy, WELL_GPUS_DIFFER)
    if told.code is None:
        return "the code is not: it is the same cubin" if alone else "with the same cubin"
    there, here = told.changed(policy)
    sizes = [f"{_size(each)} on {board.host}" for each, board in zip(told.code, (doubt.there, doubt.here), strict=True)]
    if there and here:
        return f"the code is {'slower' if told.code[1].size > 0 else 'faster'} on both nodes: {', '.join(sizes)}"
    if there or here:
        only = doubt.here if here else doubt.there
        return f"the code differs on {only.host} alone: {', '.join(sizes)}"
    return f"the code is {'not' if alone else 'as fast'}: {', '.join(sizes)}"


def _is_believed(found: Estimate, policy: Policy, least: float) -> bool:
    return abs(found.deviations) >= policy.believed_deviations and abs(found.size) >= least


def _pair(one: str, other: str) -> str:
    """Two nodes, whichever was met first: that one is slower is one cause, from whichever side it is seen."""
    return " and ".join(sorted((one, other)))


def _much(found: Estimate) -> str:
    return f"{abs(expm1(found.size)):.1%}"


def _size(found: Estimate) -> str:
    low, high = found.size - 1.96 * found.error, found.size + 1.96 * found.error
    return f"{expm1(found.size):+.1%} ({expm1(low):+.1%} to {expm1(high):+.1%})"
