"""Plans are compiled as a whole, each config with its own plan's library, in an order that is the same each time."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from tilewatch.kernels.compiling import compile_plan as module
from tilewatch.kernels.compiling.compile_plan import compile_plan, compile_plans, shuffle_trials
from tilewatch.kernels.results import Params, Plan, PlannedTrial

TRIALS = tuple(PlannedTrial({"tile": each}, str(each)) for each in range(20))
PLAN = Plan("gemm", "1x1", "sm_90", "source", 1, (), 1, 1, (), TRIALS)
OTHER = replace(PLAN, kernel="norm", problem="2x2", arch="sm_100", trials=TRIALS[:2])


class MadePool:
    """Returns what it was asked to compile."""

    def __init__(self, store_url: str, *, jobs: int, limit_s: float) -> None:
        assert (store_url, jobs, limit_s) == ("file:///store", 2, 7.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start_all(self, works: Sequence[Callable[["MadePool"], Any]]) -> list[Future[Any]]:
        started: list[Future[Any]] = [Future() for _ in works]
        for each, work in zip(started, works, strict=True):
            each.set_result(work(self))
        return started

    def compile(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> tuple[Any, ...]:
        return library.name, kernel, problem, config["tile"], arch


@pytest.fixture(autouse=True)
def made_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CompilerPool", MadePool)


def test_each_config_of_several_plans_is_compiled_with_its_own_library() -> None:
    plans = [(Path("old"), PLAN), (Path("new"), OTHER)]
    done = list(compile_plans(plans, "file:///store", jobs=2, limit_s=7.0))
    assert sorted((number, trial.config["tile"]) for number, trial, _ in done) == [
        *((0, tile) for tile in range(20)),
        (1, 0),
        (1, 1),
    ]
    for number, trial, outcome in done:
        of = ("old", "gemm", "1x1") if number == 0 else ("new", "norm", "2x2")
        assert outcome == (*of, trial.config["tile"], "sm_90" if number == 0 else "sm_100")


def test_a_plan_s_trials_come_with_their_outcomes() -> None:
    done = list(compile_plan(Path("old"), PLAN, "file:///store", jobs=2, limit_s=7.0))
    assert {trial.config["tile"]: outcome for trial, outcome in done} == {
        tile: ("old", "gemm", "1x1", tile, "sm_90") for tile in range(20)
    }


def test_trials_are_shuffled_alike_each_time() -> None:
    shuffled = shuffle_trials(TRIALS)
    assert shuffled == shuffle_trials(TRIALS) != list(TRIALS)
    assert sorted(each.config["tile"] for each in shuffled) == list(range(20))
    assert shuffle_trials(()) == []
