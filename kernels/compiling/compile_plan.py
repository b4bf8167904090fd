"""Compiles a whole plan on this machine: several compiler processes, outcomes as they come, no queue, no database."""

import queue
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial


def spread(trials: Sequence[PlannedTrial]) -> list[PlannedTrial]:
    """Returns the same trials in a fixed random order: slow neighbours (big tiles) are taken apart, so that no process
    gets all of them and results show from the first second."""
    return random.Random(0).sample(list(trials), len(trials))  # noqa: S311 - an order, not a secret


def compile_plan(
    library: Path, plan: Plan, store_url: str, *, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[tuple[PlannedTrial, Compiled]]:
    """Compiles every trial of the plan and yields outcomes as they come. Raises BuildError or StoreError
    when nothing can compile."""
    todo: queue.SimpleQueue[PlannedTrial | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[PlannedTrial, Compiled] | ExpectedError] = queue.SimpleQueue()
    trials = spread(plan.trials)
    for trial in [*trials, *([None] * jobs)]:
        todo.put(trial)

    def work() -> None:
        # The child belongs to this thread: it is killed when the thread that started it ends.
        with Compiler(store_url, limit_s=limit_s) as compiler:
            while (trial := todo.get()) is not None:
                try:
                    done.put((trial, compiler.compile(library, plan.kernel, plan.problem, trial.config, plan.arch)))
                except ExpectedError as error:
                    done.put(error)
                    return

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for _ in trials:
            outcome = done.get()
            if isinstance(outcome, ExpectedError):
                raise outcome
            yield outcome
    finally:
        while not todo.empty():
            todo.get()
        for _ in threads:
            todo.put(None)
        for thread in threads:
            thread.join()
