"""Starts the two processes that measure a problem: one runs the library, the other one measures and runs none.

The library's process (kernels/gpu/library_child.py) describes the problem and computes the reference; then it ends,
before anything is timed. Where a watched operator's launches alone do not do what its host code does, and where two
sides of a replay have host code, it measures itself. The other side of a replay of library files is described by a
process that runs its library alone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tilewatch.kernels.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.measuring.description_schema import BadDescription, check_description
from tilewatch.kernels.measuring.operator_schema import check_operator
from tilewatch.kernels.results import Params

CONFIRM_DEADLINE_S = 300.0
MOST_CONFIRMATIONS = 3
"""Wrong configs of a watched operator, before the first right one, about which its own process is asked too."""

LONGEST_REASON = 500
"""Letters of a sentence that a library's process gives."""


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
    seed: int
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


class GpuProcesses:
    """Both processes. They are asked as one: whichever measures answers."""

    def __init__(
        self,
        library: Path,
        *,
        environment: Mapping[str, str],
        packages: Path | None = None,
        others: Sequence[Path] = (),
        ahead: bool = False,
        torch: bool = False,
    ) -> None:
        """One process runs `library`, and host code of `others`. With `ahead` they are imported before a problem is
        known, and with `torch` PyTorch too, for rivals; neither process touches the GPU meanwhile. Otherwise a problem
        follows at once, so they may."""
        self._start = partial(ChildProcess, environment=environment, packages=packages)
        self._libraries, self._is_ahead = (library, *others), ahead
        self._measuring: ChildProcess | None = self._start("gpu")
        if torch:
            self._measuring.begin({"ask": "import torch"})
        if not ahead:
            self._measuring.begin({"ask": "start timer"})
        self._library: ChildProcess | None = self._start_library()
        self._planned: Sequence[Preparation] = ()
        self._next = 0
        self._ready: dict[int, Mapping[str, Any] | Exception] = {}
        self._unconfirmed: Preparation | None = None
        """Of a watched operator of whose launches none has given a right result yet."""
        self._confirmations = 0

    def plan(self, preparations: Sequence[Preparation]) -> None:
        """Says what will be prepared, in this order. One process of the library then describes the problems and
        computes the references of as many as the GPU has room for, and ends before the first of them is launched: each
        problem alone costs a process and a CUDA context."""
        self._planned = preparations

    def _start_library(self) -> ChildProcess:
        first, *others = self._libraries
        library = self._start("library", library=first, others=others)
        if self._is_ahead:
            library.begin({"ask": "import", "library": str(first), "others": [str(each) for each in others]})
        return library

    def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
        """Prepares a problem, in the place of the one before, and returns its introduction. Raises ChildDied, ChildHung
        or BadDescription.

        The introduction's `library_runs_apart` is False where the process that runs a watched operator measures it, and
        `not_apart` then says why.
        """
        if preparation in self._planned[self._next :]:
            place = self._planned.index(preparation, self._next)
            self._next = place + 1
            if place not in self._ready:
                self._take_references(place, deadline_s)
            if place in self._ready:
                return self._prepare_ready(place, deadline_s)
        deadline = time.monotonic() + deadline_s
        library = self._library = self._library or self._start_library()
        problems = describe(library, preparation, deadline)
        if problems is not None:
            self._measuring = self._measuring or self._start("gpu")
            introduction = prepare(library, self._measuring, preparation, problems, deadline)
            self._library = None
            library.close()
            return {**introduction, "library_runs_apart": True}
        described, why = self._describe_operator(library, preparation, deadline)
        if described is not None:
            self._measuring = self._measuring or self._start("gpu")
            asked = {**preparation.request, "ask": "prepare", "operator": described}
            introduction = self._measuring.ask(asked, deadline_s=_left_s(deadline))
            self._library = None
            library.close()
            return {**introduction, "library_runs_apart": True, "is_operator": True}
        library.begin({**preparation.request, "ask": "prepare"})
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None
        return {**library.finish(deadline_s=_left_s(deadline)), "library_runs_apart": False, "not_apart": why}

    def _describe_operator(
        self, library: ChildProcess, preparation: Preparation, deadline: float
    ) -> tuple[Mapping[str, Any] | None, str]:
        """Returns a watched operator as its library describes it; None, and why, where its process must measure it."""
        if preparation.by_library:
            return None, preparation.by_library
        if len(self._libraries) > 1:
            return None, "both sides of a replay of host code are measured by one process"
        answer = library.ask({**_question(preparation), "ask": "describe operator"}, deadline_s=_left_s(deadline))
        if "operator" not in answer:
            return None, str(answer.get("stays"))[:LONGEST_REASON]
        check_operator(answer["operator"], preparation.kernel)
        self._unconfirmed, self._confirmations = preparation, 0
        return answer["operator"], ""

    def _take_references(self, first: int, deadline_s: float) -> None:
        """Makes planned problems ready, each within the deadline: its description, or why there is none. Stops at a
        watched operator: its memory is handed over when it is prepared."""
        library = self._library = self._library or self._start_library()
        for place, preparation in enumerate(self._planned[first:], first):
            if not library.alive:
                library = self._library = self._start_library()
            deadline = time.monotonic() + deadline_s
            try:
                problems = describe(library, preparation, deadline)
                if problems is None:
                    break
                measuring = self._measuring = self._measuring or self._start("gpu")
                library.begin({**preparation.request, "ask": "reference"})
                measuring.begin({"ask": "start timer"})  # and with it the CUDA context, at the same time
                outputs = library.finish(deadline_s=_left_s(deadline))["outputs"]
                reference = {"place": place, "problem": problems[str(preparation.library)], "outputs": outputs}
                taken = measuring.ask({**reference, "ask": "take reference"}, deadline_s=_left_s(deadline))
            except (ChildDied, ChildHung, BadDescription) as error:
                self._ready[place] = error
                if self._measuring is not None and not self._measuring.alive:
                    break
                continue
            self._ready[place] = problems if taken["refused"] is None else BadDescription(taken["refused"])
            if not taken["has_room"]:
                break
        if self._ready:
            library.close()
            self._library = None

    def _prepare_ready(self, place: int, deadline_s: float) -> dict[str, Any]:
        problems = self._ready.pop(place)
        if isinstance(problems, Exception):
            raise problems
        assert self._measuring is not None
        deadline = time.monotonic() + deadline_s
        asked = {**self._planned[place].request, "ask": "prepare", "problems": problems}
        self._measuring.ask(asked, deadline_s=_left_s(deadline))
        introduction = self._measuring.ask({"ask": "expect", "place": place}, deadline_s=_left_s(deadline))
        return {**introduction, "library_runs_apart": True}

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Asks the process that measures the problem prepared last. Raises ChildDied or ChildHung.

        Where the launches of a watched operator give no right result, and its own process finds that its host code
        does, that process measures from then on: the answer has its introduction, which says so.
        """
        measures = self._measuring or self._library
        assert measures is not None
        answer = measures.ask(request, deadline_s=deadline_s)
        if self._unconfirmed is None or request["ask"] != "trial":
            return answer
        if answer["status"] in ("wrong", "launch_error") and not answer.get("is_final"):
            return self._confirm(self._unconfirmed, request, answer)
        if answer["status"] == "timed":
            self._unconfirmed = None
        return answer

    def _confirm(self, preparation: Preparation, request: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer of the library's process where it differs, else the answer that there is."""
        self._confirmations += 1
        if self._confirmations == MOST_CONFIRMATIONS:
            self._unconfirmed = None
        library = self._start_library()
        try:
            introduction = library.ask({**preparation.request, "ask": "prepare"}, deadline_s=CONFIRM_DEADLINE_S)
            own = library.ask(request, deadline_s=CONFIRM_DEADLINE_S)
        except (ChildDied, ChildHung):
            own = {}
        if own.get("status") != "timed":
            library.close()
            return answer
        if self._measuring is not None:
            self._measuring.close()
        self._measuring, self._library, self._unconfirmed = None, library, None
        why = f"launching again what its host code launched does not give its result: {answer['failure']}"
        return {**own, "introduction": {**introduction, "library_runs_apart": False, "not_apart": why}}

    @property
    def alive(self) -> bool:
        return all(each.alive for each in self._started)

    def close(self) -> None:
        for each in self._started:
            each.close()

    @property
    def _started(self) -> list[ChildProcess]:
        return [each for each in (self._measuring, self._library) if each is not None]


def describe(library: Process, preparation: Preparation, deadline: float) -> Mapping[str, Any] | None:
    """Returns the problem as each side's library describes it, by its folder; None for a watched operator."""
    described = library.ask({**_question(preparation), "ask": "describe problem"}, deadline_s=_left_s(deadline))
    if described["problem"] is None:
        return None
    check_description(described["problem"], preparation.kernel)
    return {**preparation.sides, str(preparation.library): described["problem"]}


def describe_side(
    preparation: Preparation, environment: Mapping[str, str], *, deadline_s: float
) -> Mapping[str, Any] | None:
    """Describes a problem in a process that runs its library and no other, so that one commit cannot change what
    another one launches. None where it has no such kernel, or a watched operator.

    Raises ChildDied, ChildHung or BadDescription.
    """
    library = ChildProcess("library", environment=environment, library=preparation.library)
    try:
        asked = {**_question(preparation), "ask": "describe side"}
        problem: Mapping[str, Any] | None = library.ask(asked, deadline_s=deadline_s)["problem"]
    finally:
        library.close()
    if problem is not None:
        check_description(problem, preparation.kernel)
    return problem


def _question(preparation: Preparation) -> dict[str, Any]:
    configs = None if preparation.configs is None else [dict(each) for each in preparation.configs]
    return {**preparation.request, "configs": configs}


def prepare(
    library: Process, measuring: Process, preparation: Preparation, problems: Mapping[str, Any], deadline: float
) -> dict[str, Any]:
    """Prepares a described problem in the process that measures, and returns its introduction."""
    library.begin({**preparation.request, "ask": "reference"})
    measuring.begin(
        {**preparation.request, "ask": "prepare", "problems": problems}
    )  # both make inputs at the same time
    outputs = library.finish(deadline_s=_left_s(deadline))["outputs"]
    return measuring.ask({"ask": "expect", "outputs": outputs}, deadline_s=_left_s(deadline))


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
