"""Baselines that compile their own kernels are launched once, before the series that they are timed in."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, InProcessChild, Rig, measure_in_this_process
from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels.children.child_process import ChildDied
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare, fill

Refuse = Callable[[str], bool]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Role and question of each request, and "start" for a new process. One at a time, as they share this process."""
    measure_in_this_process(monkeypatch)
    seen: list[tuple[str, str]] = []

    class Listening(InProcessChild):
        def __init__(self, role: str, **options: Any) -> None:
            seen.append((role, "start"))
            super().__init__(role, **options)

        def ask(self, request: Any, *, deadline_s: float) -> Any:
            seen.append((self._role, request["ask"]))
            assert self._role == "gpu" or "seed" not in request
            if request.get("problem") == "1024x64" and request["ask"] == "prepare":
                self.close()
                raise ChildDied("out of memory")
            return super().ask(request, deadline_s=deadline_s)

    monkeypatch.setattr(baseline_cache, "ChildProcess", Listening)
    monkeypatch.setattr(baseline_cache, "COMPILING", ("torch_residual_add",))
    monkeypatch.setattr(baseline_cache, "AT_ONCE", 1)
    monkeypatch.setattr(baseline_cache, "FEW", 1)
    return seen


def make_series(*problems: str, baseline: str = "torch_residual_add") -> list[SeriesToPrepare]:
    return [SeriesToPrepare(LIBRARY, "residual_add", problem, (baseline, "copy")) for problem in problems]


def test_one_process_launches_the_baselines_of_several_series_and_no_reference_is_computed(
    rig: Rig, gpu: FakeGpu, asked: list[tuple[str, str]]
) -> None:
    done: list[str] = []
    series = [*make_series(PROBLEM, "128x64"), *make_series("32x64", baseline="torch_softmax")]
    assert fill(series, UUID, rig.store_url, lambda each: done.append(each.problem)) == []
    described, launched = [("library", "start"), ("library", "describe problem")], ["prepare", "baselines"]
    assert [each for each in asked if each[0] == "library"] == 2 * described
    assert [name for role, name in asked if role == "gpu"] == [
        "start",
        *launched,
        "is fit",
        "start timer",
        *launched,
        "is fit",
    ]
    assert [each.name for each in gpu.launches].count("torch_add") == 2
    assert done == [PROBLEM, "128x64"]


def test_what_failed_is_prepared_once_more_in_another_process(rig: Rig, asked: list[tuple[str, str]]) -> None:
    """It had no memory beside others."""
    done: list[str] = []
    failures = fill(make_series("1024x64", PROBLEM), UUID, rig.store_url, lambda each: done.append(each.problem))
    assert failures == ["the baselines of residual_add 1024x64 could not be prepared: out of memory"]
    assert done == [PROBLEM]
    assert asked.count(("gpu", "start")) == 3
