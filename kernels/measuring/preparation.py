"""Names a problem to prepare, and asks one process for its description and another one to prepare it."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tilewatch.kernels.measuring.description_schema import validate_description
from tilewatch.kernels.measuring.operator_schema import validate_operator
from tilewatch.kernels.results import Params

LONGEST_REASON = 500
"""Letters of a sentence that a library's process gives."""


SEEDS = 2**31
"""Seeds of inputs are below this, so that every generator of random numbers takes them."""


def draw_seed() -> int:
    """Returns a seed of inputs that no library can guess: one that knew it could tell the sets that are compared."""
    return secrets.randbelow(SEEDS)


class Process(Protocol):
    """What answers requests: a ChildProcess."""

    def begin(self, request: Mapping[str, Any]) -> None: ...
    def finish(self, *, deadline_s: float) -> dict[str, Any]: ...
    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Preparation:
    """Names a problem to prepare. `sides` are the problem as other sides of a replay describe it, by library folder:
    None for one that has no such kernel.

    `configs` are those that will be launched; None means those of the search space. `by_library` says why
    the library's process has to measure a watched operator; empty where it need not.
    """

    library: Path
    kernel: str
    problem: str
    store_url: str
    seed: int = field(default_factory=draw_seed)
    sides: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    configs: Sequence[Params] | None = None
    by_library: str = ""

    @property
    def request(self) -> dict[str, Any]:
        return {
            "library": str(self.library),
            "kernel": self.kernel,
            "problem": self.problem,
            "store": self.store_url,
            "seed": self.seed,
        }


def describe(library: Process, preparation: Preparation, deadline: float) -> Mapping[str, Any] | None:
    """Returns the problem as each side's library describes it, by its folder; None for a watched operator."""
    described = library.ask({**make_question(preparation), "ask": "describe problem"}, deadline_s=left_s(deadline))
    if described["problem"] is None:
        return None
    validate_description(described["problem"], preparation.kernel)
    return {**preparation.sides, str(preparation.library): described["problem"]}


@dataclass(frozen=True)
class OperatorAnswer:
    """A watched operator as its library describes it: `operator` is None, and `why` says why, where its process must
    measure it. `stated` is the reason that its watch file gives for that; empty where it gives none."""

    operator: Mapping[str, Any] | None
    why: str
    stated: str


def describe_operator(library: Process, preparation: Preparation, folder: Path, deadline: float) -> OperatorAnswer:
    """Asks the library in a folder to describe a watched operator, and only then names the inputs that count."""
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
    """Asks for a description. It does not name the seed: a library that knew the inputs before it says what it launches
    could mark them in what it launches."""
    configs = None if preparation.configs is None else [dict(each) for each in preparation.configs]
    asked = {name: value for name, value in preparation.request.items() if name != "seed"}
    return {**asked, "configs": configs}


def prepare(
    library: Process, measuring: Process, preparation: Preparation, problems: Mapping[str, Any], deadline: float
) -> dict[str, Any]:
    """Prepares a described problem in the process that measures, and returns its introduction."""
    library.begin({**preparation.request, "ask": "reference"})
    measuring.begin(
        {**preparation.request, "ask": "prepare", "problems": problems}
    )  # both make inputs at the same time
    outputs = library.finish(deadline_s=left_s(deadline))["outputs"]
    return measuring.ask({"ask": "expect", "outputs": outputs}, deadline_s=left_s(deadline))


def left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
