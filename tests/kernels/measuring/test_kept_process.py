"""One process measures the series of a commit, one after the other, until anything fails."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import (
    LIBRARY,
    MODULES,
    PROBLEM,
    ROOT,
    InProcessChild,
    Rig,
    install_for_children,
    measure_in_this_process,
)  # fmt: skip
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.measuring import gpu_processes, kept_process
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.measure import MeasureFailed, MeasureRequest, UncountedRun, measure_uncounted
from tilewatch.kernels.measuring.other_processes import UndisturbedGpu

FREES = "\ncuda.empty_cache = lambda: print('freed', file=open({!r}, 'a'))\n"


@pytest.fixture
def kept() -> Iterator[KeptProcess]:
    held = KeptProcess()
    yield held
    held.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roles of the processes that were started, in order. They run in this process."""
    measure_in_this_process(monkeypatch)
    roles: list[str] = []

    class Counted(InProcessChild):
        def __init__(self, role: str, **options: Any) -> None:
            roles.append(role)
            super().__init__(role, **options)

    monkeypatch.setattr(gpu_processes, "ChildProcess", Counted)
    return roles


def make_request(rig: Rig, *baselines: str, **fault: Any) -> MeasureRequest:
    cubins = [rig.cubin(1), rig.cubin(2, 80.0, **fault)]
    return MeasureRequest(LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, cubins, 0, baselines)


def test_ten_series_of_a_lane_have_one_process_that_measures(rig: Rig, started: list[str], kept: KeptProcess) -> None:
    runs = [measure_uncounted(make_request(rig, "torch_residual_add"), kept=kept) for _ in range(10)]
    assert (started.count("gpu"), started.count("library")) == (1, 10)
    assert {(each.result.winner or {})["tile_rows"] for each in runs} == {2}
    assert len({each.result.measurements[0].samples_us for each in runs}) == 1, "none is warmer than the first"


@pytest.mark.parametrize(
    "fault", [{"fault": "off"}, {"fault": "launch_error"}, {"fault": "rests later", "fault_after": 12}]
)
def test_the_process_of_a_series_in_which_a_config_failed_measures_no_other(
    rig: Rig, started: list[str], kept: KeptProcess, fault: dict[str, Any]
) -> None:
    for number in range(1, 6):
        measure_uncounted(make_request(rig, **(fault if number == 3 else {})), kept=kept)
    assert started.count("gpu") == 2


def test_the_process_in_which_a_baseline_raised_measures_no_other(
    rig: Rig, started: list[str], kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one that says that it cannot be there."""
    from tilewatch.kernels.baselines import makers

    build = makers.build

    def fail(name: str, call: Any) -> Any:
        if name == "torch_residual_add":
            raise RuntimeError("CUDA out of memory")
        return build(name, call)

    monkeypatch.setattr(makers, "build", fail)
    for names in (("no_such_baseline",), ("torch_residual_add",), ("copy",)):
        measure_uncounted(make_request(rig, *names), kept=kept)
    assert started.count("gpu") == 2


def test_a_process_whose_context_died_after_its_series_measures_no_other(
    rig: Rig, started: list[str], kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault may show only when nothing waits for it any more. To look for it launches nothing."""
    from tilewatch.kernels.gpu import gpu_child

    def fail() -> None:
        raise gpu_child.cupy.cuda.runtime.CUDARuntimeError("an illegal memory access was encountered")

    with monkeypatch.context() as only_here:
        put_back = KeptProcess.put_back

        def put_back_dead(self: KeptProcess, *about: Any) -> None:
            only_here.setattr(gpu_child.cupy.cuda.runtime, "deviceSynchronize", fail)
            only_here.setattr(gpu_child.cupy, "zeros", None)
            put_back(self, *about)

        only_here.setattr(KeptProcess, "put_back", put_back_dead)
        measure_uncounted(make_request(rig), kept=kept)
    measure_uncounted(make_request(rig), kept=kept)
    assert started.count("gpu") == 2


def test_the_series_of_another_commit_has_another_process(
    rig: Rig, started: list[str], kept: KeptProcess, tmp_path: Path
) -> None:
    other = shutil.copytree(LIBRARY, tmp_path / "other")
    for library in (LIBRARY, other, other, LIBRARY):
        measure_uncounted(replace(make_request(rig), library=library), kept=kept)
    assert started.count("gpu") == 3


def test_a_process_measures_so_many_series_and_ends(
    rig: Rig, started: list[str], kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.gpu import gpu_child

    monkeypatch.setattr(gpu_child, "MOST_SERIES", 2)
    for _ in range(5):
        measure_uncounted(make_request(rig), kept=kept)
    assert started.count("gpu") == 3


def test_what_was_interrupted_is_not_kept(
    rig: Rig, started: list[str], kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer would be taken for that of the next request."""
    ask = UndisturbedGpu.ask

    def interrupt(self: UndisturbedGpu, process: ChildProcess, request: Any, *, deadline_s: float) -> dict[str, Any]:
        if request["ask"] == "rounds":
            raise KeyboardInterrupt
        return ask(self, process, request, deadline_s=deadline_s)

    with monkeypatch.context() as only_here:
        only_here.setattr(UndisturbedGpu, "ask", interrupt)
        with pytest.raises(KeyboardInterrupt):
            measure_uncounted(make_request(rig), kept=kept)
    measure_uncounted(make_request(rig), kept=kept)
    assert started.count("gpu") == 2


def test_the_memory_of_a_series_is_freed_when_the_next_one_is_prepared(
    rig: Rig, started: list[str], kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not before: another process may measure meanwhile."""
    from tilewatch.kernels.gpu import gpu_child

    held: list[object] = []
    pool = SimpleNamespace(free_all_blocks=lambda: held.append(gpu_child._prepared))
    monkeypatch.setattr(gpu_child.cupy, "get_default_memory_pool", lambda: pool)
    measure_uncounted(make_request(rig), kept=kept)
    before = len(held)
    assert gpu_child._prepared is not None
    measure_uncounted(make_request(rig), kept=kept)
    assert started.count("gpu") == 1
    assert None in held[before:], "the arrays of the first one are gone before those of the second are made"


@pytest.fixture
def measured(rig: Rig, kept: KeptProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measures a series in real processes, whose PyTorch writes a line when its memory is freed."""
    install_for_children(monkeypatch)
    (tmp_path / "torch.py").write_text((MODULES / "torch.py").read_text() + FREES.format(str(tmp_path / "freed")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, MODULES, ROOT))))

    def measure(**fault: Any) -> UncountedRun:
        return measure_uncounted(make_request(rig, **fault), kept=kept)

    return measure


def test_a_process_that_died_is_replaced(measured: Any, kept: KeptProcess, tmp_path: Path) -> None:
    assert measured().result.winner == {"tile_rows": 2}
    first = kept._process
    assert first is not None
    assert measured(fault="abort").result.winner == {"tile_rows": 1}
    second = kept._process
    assert second is not first
    assert measured().result.winner == {"tile_rows": 2}
    assert kept._process is second
    assert (tmp_path / "freed").read_text() == "freed\n" * 2
    first.close()
    assert second is not None
    second.kill()
    assert measured().result.winner == {"tile_rows": 2}, "also one that somebody ended between two series"


def test_a_process_without_a_series_ends(measured: Any, kept: KeptProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "IDLE_S", 0.01)
    measured()
    while kept._process is not None:  # or the test's own limit ends it
        time.sleep(0.01)


class Idle:
    """A process that does nothing, and a timer that nobody waits for."""

    def __init__(self, *waits_for: Any, is_fit: bool = True) -> None:
        self.waits_for, self.is_fit, self.alive, self.events, self.daemon = waits_for, is_fit, True, list[str](), False
        self.error: Exception | None = None

    def ask(self, request: Any, *, deadline_s: float) -> dict[str, Any]:
        assert deadline_s == kept_process.ANSWER_DEADLINE_S
        self.events.append(request["ask"])
        if self.error is not None:
            raise self.error
        return {"is_fit": self.is_fit}

    def start(self) -> None:
        self.events.append("start")

    def cancel(self) -> None:
        self.events.append("cancel")

    def close(self) -> None:
        self.events.append("close")


def test_only_one_fit_process_is_kept_until_its_own_timer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older timer would end it too early. A timer must not keep the worker alive."""
    timers: list[Idle] = []
    monkeypatch.setattr(kept_process.threading, "Timer", lambda *of: (timers.append(Idle(*of)), timers[-1])[1])
    kept, (first, second, unfit) = KeptProcess(), (Idle(), Idle(), Idle(is_fit=False))
    for process in (first, second, unfit):
        kept.put_back("a commit", process)  # type: ignore[arg-type]
    assert [each.events for each in (first, second, unfit)] == [["is fit", "close"], ["is fit"], ["is fit", "close"]]
    assert [(each.waits_for, each.daemon) for each in timers] == [((kept_process.IDLE_S, kept.close), True)] * 2
    assert [each.events for each in timers] == [["start", "cancel"], ["start"]]
    assert kept.take("a commit", pytest.fail) is second
    assert second.events[1:] == ["start timer"]
    assert timers[1].events == ["start", "cancel"], "it must not end the process that is put back next"
    kept.put_back("a commit", second)  # type: ignore[arg-type]
    assert kept.take("another commit", lambda: first) is first  # type: ignore[arg-type, return-value]
    assert second.events[2:] == ["is fit", "close"]


@pytest.mark.parametrize("error", [ChildDied("SIGSEGV"), ChildHung("no answer within 20 s")])
def test_a_process_that_does_not_answer_is_closed_and_replaced(error: Exception) -> None:
    kept, first, second = KeptProcess(), Idle(), Idle()
    first.error = error
    kept.put_back("a commit", first)  # type: ignore[arg-type]
    assert first.events == ["is fit", "close"]
    kept.put_back("a commit", second)  # type: ignore[arg-type]
    second.error = error
    new = Idle()
    assert kept.take("a commit", lambda: new) is new  # type: ignore[arg-type, return-value]
    assert second.events == ["is fit", "start timer", "close"]
    new.alive = False
    kept.put_back("a commit", new)  # type: ignore[arg-type]
    assert new.events == ["close"], "one that has ended is not asked"
    kept.close()


def test_a_library_that_fails_leaves_no_process(
    rig: Rig, kept: KeptProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_for_children(monkeypatch)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rows.py").write_text("raise ValueError('broken')")
    with pytest.raises(MeasureFailed):
        measure_uncounted(replace(make_request(rig), library=tmp_path / "broken"), kept=kept)
    assert kept._process is None
