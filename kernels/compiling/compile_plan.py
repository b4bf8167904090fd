"""Compiles configs on this machine in several processes, without a job queue or a database."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path

from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial


def shuffle_trials(trials: Sequence[PlannedTrial]) -> list[PlannedTrial]:
    """Returns the trials in a shuffled order, which is the same in each call."""
    # Neighbours in a plan compile equally slowly. Shuffled, some results come early.
    return random.Random(0).sample(list(trials), len(trials))  # noqa: S311 - an order, not a secret


def compile_plan(
    library: Path, plan: Plan, store_url: str, *, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[tuple[PlannedTrial, Compiled]]:
    """Compiles every config of a plan, and yields each planned trial with the compiler's outcome."""
    for _, trial, outcome in compile_plans([(library, plan)], store_url, jobs=jobs, limit_s=limit_s):
        yield trial, outcome


def compile_plans(
    plans: Sequence[tuple[Path, Plan]], store_url: str, *, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[tuple[int, PlannedTrial, Compiled]]:
    """Compiles the configs of several plans. Yields (index of the plan, planned trial, compiler's outcome)."""
    trials = [(number, trial) for number, (_, plan) in enumerate(plans) for trial in shuffle_trials(plan.trials)]
    with CompilerPool(store_url, jobs=jobs, limit_s=limit_s) as pool:
        works = [partial(_compile, *plans[number], trial) for number, trial in trials]
        wanted = dict(zip(pool.start_all(works), trials, strict=True))
        for done in as_completed(wanted):
            yield *wanted.pop(done), done.result()


def _compile(library: Path, plan: Plan, trial: PlannedTrial, compiler: Compiler) -> Compiled:
    return compiler.compile(library, plan.kernel, plan.problem, trial.config, plan.arch)
