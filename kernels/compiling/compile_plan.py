"""Compiles whole plans on this machine in several processes, without queue or database."""

import queue
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial


def shuffle_trials(trials: Sequence[PlannedTrial]) -> list[PlannedTrial]:
    """Returns the trials in a fixed random order. Neighbours with big tiles are slow; mixed, no process gets all of
    them, and fast results come from the first second."""
    return random.Random(0).sample(list(trials), len(trials))  # noqa: S311 - an order, not a secret


def compile_plan(
    library: Path, plan: Plan, store_url: str, *, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[tuple[PlannedTrial, Compiled]]:
    """Compiles every trial of a plan and yields outcomes as they come. Raises BuildError or StoreError if nothing can
    be compiled."""
    for _, trial, outcome in compile_plans([(library, plan)], store_url, jobs=jobs, limit_s=limit_s):
        yield trial, outcome


def compile_plans(
    plans: Sequence[tuple[Path, Plan]], store_url: str, *, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[tuple[int, PlannedTrial, Compiled]]:
    """Compiles plans one after the other, each with its library. Yields the plan's number, the trial and its outcome.
    Raises like `compile_plan`."""
    todo: queue.SimpleQueue[tuple[int, PlannedTrial] | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, PlannedTrial, Compiled] | ExpectedError] = queue.SimpleQueue()
    trials = [(number, trial) for number, (_, plan) in enumerate(plans) for trial in shuffle_trials(plan.trials)]
    for each in [*trials, *([None] * jobs)]:
        todo.put(each)

    def work() -> None:
        # The child belongs to this thread: it is killed when the thread that started it ends.
        with Compiler(store_url, limit_s=limit_s) as compiler:
            while (wanted := todo.get()) is not None:
                number, trial = wanted
                library, plan = plans[number]
                try:
                    outcome = compiler.compile(library, plan.kernel, plan.problem, trial.config, plan.arch)
                    done.put((number, trial, outcome))
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
