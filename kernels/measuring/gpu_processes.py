"""Starts the two processes that measure a problem. One runs the library, and the other measures.

The library process describes the problem, computes the right results, and ends before anything is timed. For a watched
operator whose launches cannot be repeated, one process does both."""

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tilewatch.kernels.children import sandbox
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.store import find_folder
from tilewatch.kernels.measuring.description_schema import BadDescription, validate_description
from tilewatch.kernels.measuring.gpu_turn import find_turn
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.other_processes import UndisturbedGpu
from tilewatch.kernels.measuring.preparation import (
    Preparation,
    describe,
    describe_operator,
    left_s,
    make_question,
    prepare,
)

WATCHED: Mapping[str, Any] = {"is_watched": True}
"""Takes the place of a problem's description if the problem is that of a watched operator."""

WITHOUT_GPU = ("ahead_s", "waited_s")
"""Fields of the answer of `prepare` with seconds that do not hold the GPU: describing the problem, and waiting."""

CONFIRM_DEADLINE_S = 300.0
MOST_CONFIRMATIONS = 3
"""Most failed configs of an operator that its own process tries again. After the first right config it tries none."""


class GpuProcesses:
    """The library process and the measuring process of one problem."""

    def __init__(
        self,
        library: Path,
        *,
        environment: Mapping[str, str],
        packages: Path | None = None,
        others: Sequence[Path] = (),
        torch: bool = False,
        kept: KeptProcess | None = None,
    ) -> None:
        """Starts the processes, which do not use the GPU yet. `others` are the libraries of other commits."""
        self._start = partial(ChildProcess, environment=environment)
        self._start_measuring = partial(self._start, "gpu", packages=packages, torch=torch)
        self._put_back: Callable[[ChildProcess], None] | None = None
        if kept is not None:
            group = (library, *sorted(environment.items()))
            self._start_measuring = partial(kept.take, group, self._start_measuring)
            self._put_back = partial(kept.put_back, group)
        self._packages, self._libraries = packages, (library, *others)
        self._turn = find_turn(environment.get("CUDA_VISIBLE_DEVICES", ""))
        self._release_turn: Callable[[], object] | None = None
        self._measuring: ChildProcess | None = self._start_measuring()
        self._has_timer = False
        self._library: ChildProcess | None = self._start_library()
        self._sides: dict[Path, ChildProcess] = {}
        self._planned: Sequence[Preparation] = ()
        self._next = 0
        self._ready: dict[int, Mapping[str, Any] | Exception] = {}
        self._stated = ""
        """The watch file's reason why the operator's own process may have to measure it, or ""."""
        self._unconfirmed: Preparation | None = None
        """The preparation of a watched operator until a launch of it gives a right result, and None after that."""
        self._confirmations = 0
        self._gpu = UndisturbedGpu()
        self._has_answered = True
        """False if an exception may have left a process's answer unread."""

    def plan(self, preparations: Sequence[Preparation]) -> None:
        """Stores the problems that will be measured next, so that one library process can prepare several."""
        self._planned = preparations

    def start_sides(self) -> None:
        """Starts one library process for each other commit of a comparison."""
        for folder in self._libraries[1:]:
            if folder not in self._sides:
                self._sides[folder] = self._start_library(folder)

    def _start_timer(self) -> None:
        """Creates the CUDA context of the measuring process while the library process works."""
        if self._measuring is not None and not self._has_timer:
            self._measuring.begin({"ask": "start timer"})
            self._has_timer = True

    def _start_library(self, folder: Path | None = None) -> ChildProcess:
        """Starts a library process, by default for the first library."""
        folder = folder or self._libraries[0]
        library = self._start("library", library=folder)
        library.begin({"ask": "import", "library": str(folder)})
        return library

    def _start_all(self, preparation: Preparation) -> ChildProcess:
        """Starts one process that both runs libraries and measures."""
        first, *others = self._libraries
        store = [find_folder(preparation.store_url)]
        return self._start("library", library=first, others=others, packages=self._packages, readable=store)

    def _close_libraries(self) -> None:
        for each in (self._library, *self._sides.values()):
            if each is not None:
                each.close()
        self._library, self._sides = None, {}

    def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
        """Prepares a problem, and keeps the GPU until `close`. Raises ChildDied, ChildHung or BadDescription."""
        self._has_answered = False
        began_at = time.monotonic()
        self._start_timer()
        if self._library is not None and not self._library.is_idle:
            self._library.finish(deadline_s=deadline_s)  # the import needs no turn
        problems = None
        if preparation not in self._planned[self._next :]:
            library = self._library = self._library or self._start_library()
            problems = describe(library, preparation, time.monotonic() + deadline_s)
        ahead_s = time.monotonic() - began_at
        with self._turn.prepare() as waited_s:
            introduction = self._prepare(preparation, problems, deadline_s)
        if introduction["library_runs_apart"]:  # its end takes 0.08 s and needs no turn (H200, 2026-11-29)
            self._close_libraries()
        self._has_answered = True
        return {**introduction, "ahead_s": ahead_s, "waited_s": waited_s + self._take_turn()}  # seconds

    def _prepare(
        self, preparation: Preparation, problems: Mapping[str, Any] | None, deadline_s: float
    ) -> dict[str, Any]:
        deadline = time.monotonic() + deadline_s
        if preparation in self._planned[self._next :]:
            place = self._planned.index(preparation, self._next)
            self._next = place + 1
            if place not in self._ready:
                self._take_references(place, deadline_s)
            if place in self._ready:
                return self._prepare_ready(place, deadline_s)
        library = self._library = self._library or self._start_library()
        if problems is not None:
            self._measuring = self._measuring or self._start_measuring()
            introduction = prepare(library, self._measuring, preparation, problems, deadline)
            return {**introduction, "library_runs_apart": True}
        self._stated = ""
        described, why = self._describe_operators(preparation, deadline)
        if described is not None:
            self._measuring = self._measuring or self._start_measuring()
            asked = {**preparation.request, "ask": "prepare", "operators": described}
            introduction = self._measuring.ask(asked, deadline_s=left_s(deadline))
            return {**introduction, "library_runs_apart": True, "is_operator": True}
        if (refused := self._refuse(is_decided=bool(preparation.by_library))) is not None:
            raise BadDescription(f"{why}, and {refused}")
        self._close_libraries()
        library = self._library = self._start_all(preparation)
        library.begin({**preparation.request, "ask": "prepare"})
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None
        introduction = library.finish(deadline_s=left_s(deadline))
        return {**introduction, "library_runs_apart": False, "not_apart": why, "stated": self._stated}

    def _refuse(self, *, is_decided: bool = False) -> str | None:
        """Returns why one process may not both run host code and measure, or None if that is allowed."""
        apart = sandbox.find_apart()
        if apart is sandbox.Apart.ALWAYS:
            return f"{sandbox.REQUIRE_APART} is set: no process measures the code that it runs"
        if apart is sandbox.Apart.STATED and not is_decided and not self._stated:
            return (
                "no process measures the code that it runs unless its watch file says why it has to: "
                'watch(..., not_apart="...")'
            )
        return None

    def _describe_operators(self, preparation: Preparation, deadline: float) -> tuple[Mapping[str, Any] | None, str]:
        """Returns (descriptions of a watched operator by library folder, "") or (None, reason)."""
        if preparation.by_library:
            return None, preparation.by_library
        assert self._library is not None
        self.start_sides()
        described = {}
        for folder, process in {preparation.library: self._library, **self._sides}.items():
            answer = describe_operator(process, preparation, folder, deadline)
            if folder == preparation.library or answer.operator is None:
                self._stated = answer.stated
            if answer.operator is None:
                return None, answer.why
            described[str(folder)] = answer.operator
        self._unconfirmed, self._confirmations = preparation, 0
        return described, ""

    def _take_references(self, first: int, deadline_s: float) -> None:
        """Copies the reference results of the announced problems until memory is full."""
        library = self._library = self._library or self._start_library()
        for place, preparation in enumerate(self._planned[first:], first):
            if not library.alive:
                library = self._library = self._start_library()
            deadline = time.monotonic() + deadline_s
            try:
                problems = describe(library, preparation, deadline)
                if problems is None:
                    break
                measuring = self._measuring = self._measuring or self._start_measuring()
                library.begin({**preparation.request, "ask": "reference"})
                measuring.begin({"ask": "start timer"})  # creates the CUDA context at the same time
                outputs = library.finish(deadline_s=left_s(deadline))["outputs"]
                reference = {"place": place, "problem": problems[str(preparation.library)], "outputs": outputs}
                taken = measuring.ask({**reference, "ask": "take reference"}, deadline_s=left_s(deadline))
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
        self._measuring.ask(asked, deadline_s=left_s(deadline))
        introduction = self._measuring.ask({"ask": "expect", "place": place}, deadline_s=left_s(deadline))
        return {**introduction, "library_runs_apart": True}

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Sends a request to the measuring process, and returns the answer. Raises ChildDied, ChildHung or GpuBusy."""
        measures = self._measuring or self._library
        assert measures is not None
        self._has_answered = False
        answer = self._gpu.ask(measures, request, deadline_s=deadline_s)
        self._has_answered = True
        if self._unconfirmed is None or request["ask"] != "trial":
            return answer
        if answer["status"] in ("wrong", "launch_error") and not answer.get("is_final"):
            # Then another process may measure from now on; the answer has its `introduction`.
            return self._confirm(self._unconfirmed, request, answer)
        if answer["status"] == "timed":
            self._unconfirmed = None
        return answer

    def _confirm(self, preparation: Preparation, request: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """Repeats a failed trial by running the operator's host code. Returns the old answer if both trials fail."""
        if self._refuse() is not None:
            why = f"launched by what its host code said ({sandbox.REQUIRE_APART}), {answer['failure']}"
            return {**answer, "failure": why}
        self._confirmations += 1
        if self._confirmations == MOST_CONFIRMATIONS:
            self._unconfirmed = None
        library = self._start_all(preparation)
        try:
            introduction = library.ask({**preparation.request, "ask": "prepare"}, deadline_s=CONFIRM_DEADLINE_S)
            own = self._gpu.ask(library, request, deadline_s=CONFIRM_DEADLINE_S)
        except (ChildDied, ChildHung):
            own = {}
        if own.get("status") != "timed":
            library.close()
            return answer
        if self._measuring is not None:
            self._measuring.close()
        self._measuring, self._library, self._unconfirmed = None, library, None
        why = f"launching again what its host code launched does not give its result: {answer['failure']}"
        boundary = {"library_runs_apart": False, "not_apart": why, "stated": self._stated}
        return {**own, "introduction": {**introduction, **boundary}}

    @property
    def alive(self) -> bool:
        return all(each.alive for each in self._started)

    def close(self) -> None:
        """Ends the processes, or keeps the measuring process for the next problem."""
        # A process that is not idle may still use the GPU.
        if all(each.is_idle for each in self._started):
            self._end_turn()
        if self._put_back is not None and self._measuring is not None and self._has_answered:
            self._put_back(self._measuring)
            self._measuring = None
        for each in self._started:
            each.close()
        self._end_turn()

    def _take_turn(self) -> float:
        """Waits until this process may use the GPU, and returns the seconds of waiting."""
        if self._release_turn is not None:
            return 0.0
        waited_s = self._turn.take()
        # A finalizer, because an owner that is never closed would block the next series for ever.
        self._release_turn = weakref.finalize(self, self._turn.release)
        return waited_s

    def _end_turn(self) -> None:
        if self._release_turn is not None:
            self._release_turn()
            self._release_turn = None

    @property
    def _started(self) -> list[ChildProcess]:
        return [each for each in (self._measuring, self._library, *self._sides.values()) if each is not None]


def describe_side(
    preparation: Preparation, environment: Mapping[str, str], *, deadline_s: float
) -> Mapping[str, Any] | None:
    """Describes a problem by its library. Returns None if the kernel is missing, or WATCHED for a watched operator."""
    # A commit in the same process could change the launches of another commit.
    with closing(ChildProcess("library", environment=environment, library=preparation.library)) as library:
        asked = {**make_question(preparation), "ask": "describe side"}
        answer = library.ask(asked, deadline_s=deadline_s)
    if answer["is_watched"]:
        return WATCHED
    problem: Mapping[str, Any] | None = answer["problem"]
    if problem is not None:
        validate_description(problem, preparation.kernel)
    return problem
