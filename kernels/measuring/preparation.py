"""Asks the library process to describe a problem, and the measuring process to prepare it."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.measuring.description_schema import validate_description
from tilewatch.kernels.measuring.operator_schema import validate_operator
from tilewatch.kernels.results import Params

LONGEST_REASON = 500
"""Most characters that are kept of a reason from a library process."""


SEEDS = 2**31
"""The number of possible seeds, from 0 on. Every random generator in use accepts all of them."""


def draw_seed() -> int:
    """Returns a random seed for inputs. A library must not be able to guess it."""
    return secrets.randbelow(SEEDS)


@dataclass(frozen=True)
class Preparation:
    """A problem to prepare, with the seed of its inputs."""

    library: Path
    kernel: str
    problem: str
    store_url: str
    seed: int = field(default_factory=draw_seed)
    sides: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)  # descriptions by other libraries
    configs: Sequence[Params] | None = None  # None for the short list
    by_library: str = ""  # why the library process must measure, or ""

    @property
    def request(self) -> dict[str, Any]:
        return {
            "library": str(self.library),
            "kernel": self.kernel,
            "problem": self.problem,
            "store": self.store_url,
            "seed": self.seed,
        }


def describe(library: ChildProcess, preparation: Preparation, deadline: float) -> Mapping[str, Any] | None:
    """Returns the descriptions of a problem by library, or None for a watched operator."""
    described = library.ask({**make_question(preparation), "ask": "describe problem"}, deadline_s=left_s(deadline))
    if described["problem"] is None:
        return None
    validate_description(described["problem"], preparation.kernel)
    return {**preparation.sides, str(preparation.library): described["problem"]}


@dataclass(frozen=True)
class OperatorAnswer:
    """A library's description of a watched operator, or why the library's process must measure the operator."""

    operator: Mapping[str, Any] | None
    why: str
    stated: str  # the reason in the watch file, or ""


def describe_operator(library: ChildProcess, preparation: Preparation, folder: Path, deadline: float) -> OperatorAnswer:
    """Returns a library process's description of an operator."""
    operator: dict[str, Any] = {}
    stated = ""
    described = {**make_question(preparation), "library": str(folder), "ask": "describe operator"}
    for asked in (described, {"ask": "hand over", "seed": preparation.seed}):
        answer = library.ask(asked, deadline_s=left_s(deadline))
        stated = str(answer.get("stated", stated))[:LONGEST_REASON]
        if "operator" not in answer:
            return OperatorAnswer(None, str(answer.get("stays"))[:LONGEST_REASON], stated)
        operator |= answer["operator"]
    validate_operator(operator, preparation.kernel)
    return OperatorAnswer(operator, "", stated)


def make_question(preparation: Preparation) -> dict[str, Any]:
    """Returns the request for a description of the problem, without the seed that libraries must not know."""
    configs = None if preparation.configs is None else [dict(each) for each in preparation.configs]
    asked = {name: value for name, value in preparation.request.items() if name != "seed"}
    return {**asked, "configs": configs}


def prepare(
    library: ChildProcess,
    measuring: ChildProcess,
    preparation: Preparation,
    problems: Mapping[str, Any],
    deadline: float,
) -> dict[str, Any]:
    """Prepares a described problem, and returns the measuring process's answer."""
    library.begin({**preparation.request, "ask": "reference"})
    measuring.begin(
        {**preparation.request, "ask": "prepare", "problems": problems}
    )  # both make inputs at the same time
    outputs = library.finish(deadline_s=left_s(deadline))["outputs"]
    return measuring.ask({"ask": "expect", "outputs": outputs}, deadline_s=left_s(deadline))


def left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
