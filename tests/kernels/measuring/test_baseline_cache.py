"""Baselines that compile their own kernels are launched before the series that they are timed in, and nvcc runs while
no process holds the GPU."""

import dataclasses
import fcntl
import os
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, InProcessChild, Rig, measure_in_this_process
from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch import processes
from tilewatch.kernels.baselines.baseline import BaselineLaunch
from tilewatch.kernels.children.child_process import ChildDied
from tilewatch.kernels.compiling.deferred_nvcc import NVCC, WANTED
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare, fill
from tilewatch.kernels.measuring.gpu_turn import find_turn

Refuse = Callable[[str], bool]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Role and question of each request, and "start" for a new process. One at a time, as they share this process."""
    measure_in_this_process(monkeypatch)
    seen: list[tuple[str, str]] = []

    class Listening(InProcessChild):
        def __init__(self, role: str, *, environment: dict[str, str], **options: Any) -> None:
            seen.append((role, "start"))
            for name in set(environment) & {NVCC, WANTED}:
                monkeypatch.setenv(name, environment[name])
            environment = {name: value for name, value in environment.items() if name not in (NVCC, WANTED)}
            super().__init__(role, environment=environment, **options)

        def ask(self, request: Any, *, deadline_s: float) -> Any:
            seen.append((self._role, request["ask"]))
            assert 0 < deadline_s <= baseline_cache.DEADLINE_S
            assert self._role == "gpu" or "seed" not in request
            if request.get("problem") == "1024x64" and request["ask"] == "prepare":
                self.close()
                raise ChildDied("out of memory")
            return super().ask(request, deadline_s=deadline_s)

    monkeypatch.setattr(baseline_cache, "ChildProcess", Listening)
    monkeypatch.setattr(baseline_cache, "COMPILING", ("torch_residual_add",))
    monkeypatch.setattr(baseline_cache, "find_nvcc", lambda: None)
    for name in ("AT_ONCE", "LAUNCHED_AT_ONCE", "FEW"):
        monkeypatch.setattr(baseline_cache, name, 1)
    return seen


def make_series(*problems: str, baseline: str = "torch_residual_add") -> list[SeriesToPrepare]:
    return [SeriesToPrepare(LIBRARY, "residual_add", problem, (baseline, "copy")) for problem in problems]


def test_one_process_launches_the_baselines_of_several_series_and_no_reference_is_computed(
    rig: Rig, gpu: FakeGpu, asked: list[tuple[str, str]]
) -> None:
    done: list[str] = []
    series = [*make_series(PROBLEM, "128x64"), *make_series("32x64", baseline="torch_softmax")]
    assert fill(series, UUID, rig.store_url, lambda each: done.append(each.problem)) == []
    described, launched = [("library", "start"), ("library", "describe problem")], ["prepare", "baselines", "free"]
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


@pytest.mark.parametrize(("cores", "at_once"), [(1, 2), (4, 2), (5, 2), (6, 3), (16, 8), (32, 16), (34, 16)])
def test_kernels_are_compiled_on_half_of_the_cores_and_on_no_more_than_sixteen(
    monkeypatch: pytest.MonkeyPatch, cores: int, at_once: int
) -> None:
    monkeypatch.setattr(processes, "count_cores", lambda: cores)
    assert runpy.run_path(baseline_cache.__file__)["AT_ONCE"] == at_once


def test_what_failed_is_prepared_once_more_in_another_process(rig: Rig, asked: list[tuple[str, str]]) -> None:
    """It had no memory beside others."""
    done: list[str] = []
    failures = fill(make_series("1024x64", PROBLEM), UUID, rig.store_url, lambda each: done.append(each.problem))
    assert failures == ["the baselines of residual_add 1024x64 could not be prepared: out of memory"]
    assert done == [PROBLEM]
    assert asked.count(("gpu", "start")) == 3


COMPILER = """#!/bin/sh
grep -q broken "$1" && exit 2
cp "$1" "$4"
echo "$1" >> {folder}/compiled
flock --nonblock {turn} true || echo held >> {folder}/compiled
"""
"""A compiler that says when some process holds or shares the GPU while it runs."""


@pytest.fixture
def compiled(rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:  # noqa: ARG001 - CuPy's stand-in
    """A file with a line for each compiled kernel. Each launch of a baseline needs two kernels."""
    turn = find_turn(UUID)
    monkeypatch.setattr(turn, "_file", tmp_path / "turn")
    compiler = tmp_path / "nvcc"
    compiler.write_text(COMPILER.format(folder=tmp_path, turn=tmp_path / "turn"))
    compiler.chmod(0o700)
    monkeypatch.setattr(baseline_cache, "find_nvcc", lambda: compiler)
    from tilewatch.kernels.baselines import makers  # needs the stand-in for CuPy

    build = makers.build

    def build_compiling(name: str, call: Any) -> BaselineLaunch:
        made = build(name, call)

        def launch() -> None:
            with (tmp_path / "turn").open("a") as lock:
                assert not processes.try_lock(lock, fcntl.LOCK_EX), "launched without a turn"
            for number in range(2):
                code = tmp_path / "kernel.cu"
                code.write_text(f"{'broken' if call.sizes['rows'] == 128 else name} {number}")
                command = [os.environ[NVCC], str(code), "-cubin", "-o", str(tmp_path / "kernel.cubin")]
                if subprocess.run(command, check=False).returncode:
                    raise RuntimeError("NVCC compilation failed")
            made.launch()

        return dataclasses.replace(made, launch=launch)

    monkeypatch.setattr(makers, "build", build_compiling)
    return tmp_path / "compiled"


def test_nvcc_runs_between_launches_while_nobody_holds_the_gpu(
    rig: Rig, gpu: FakeGpu, asked: list[tuple[str, str]], compiled: Path
) -> None:
    done: list[str] = []
    assert fill(make_series(PROBLEM), UUID, rig.store_url, lambda each: done.append(each.problem)) == []
    assert len(compiled.read_text().splitlines()) == 2
    assert "held" not in compiled.read_text()
    assert [each.name for each in gpu.launches].count("torch_add") == 1
    assert asked.count(("gpu", "baselines")) == 3
    assert asked.count(("gpu", "start")) == 1
    assert done == [PROBLEM]


def test_a_kernel_that_nvcc_refuses_is_left_to_its_series(
    rig: Rig, asked: list[tuple[str, str]], compiled: Path
) -> None:
    done: list[str] = []
    assert fill(make_series("128x64"), UUID, rig.store_url, lambda each: done.append(each.problem)) == []
    assert not compiled.exists()
    assert asked.count(("gpu", "baselines")) == 2
    assert done == ["128x64"]
