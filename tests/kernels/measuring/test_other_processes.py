"""A time that was taken while another process used the GPU is taken again, and the record names that process."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, Rig, measure_in_this_process
from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch import processes
from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.measuring import other_processes
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.measuring.other_processes import MOST_WAITS, GpuBusy, UndisturbedGpu
from tilewatch.kernels.results import RunResult

STRANGER = 1
"""The number of a process that is none of ours, whatever runs these tests."""

NOBODY: Mapping[str, Any] = {"running": [], "active": [], "unknown": None}


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited between two attempts; no second passes."""
    slept: list[float] = []
    monkeypatch.setattr(other_processes, "time", SimpleNamespace(sleep=slept.append))
    return slept


class Timed:
    """A process that answers with its n-th time and who was there."""

    def __init__(self, *seen: Mapping[str, Any] | None) -> None:
        self._seen, self.asked = list(seen), 0

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        if request == {"ask": "look"}:
            return {"seen": NOBODY}
        assert (request, deadline_s) == ({"ask": "rounds"}, 5)
        seen = self._seen[min(self.asked, len(self._seen) - 1)]
        self.asked += 1
        answer: dict[str, Any] = {"samples_us": [[float(self.asked)]], "telemetry": [{"when": "a"}, {"when": "b"}]}
        return answer if seen is None else {**answer, "seen": seen}


def ask(gpu: UndisturbedGpu, process: Timed) -> dict[str, Any]:
    return gpu.ask(cast(ChildProcess, process), {"ask": "rounds"}, deadline_s=5)


def running(*numbers: int) -> Mapping[str, Any]:
    return {**NOBODY, "running": list(numbers)}


def test_a_time_without_others_is_taken_once_and_its_last_reading_says_so(waited: list[float]) -> None:
    answer = ask(UndisturbedGpu(), Timed(NOBODY))
    assert answer == {"samples_us": [[1.0]], "telemetry": [{"when": "a"}, {"when": "b", "others": []}]}
    assert waited == []


def test_a_time_beside_another_process_is_dropped_also_the_first_one_after_it_was_seen(waited: list[float]) -> None:
    """It may have ended in the middle of the second."""
    gpu, timed = UndisturbedGpu(), Timed(running(STRANGER), NOBODY, NOBODY)
    answer = ask(gpu, timed)
    assert answer["samples_us"] == [[3.0]]
    (other,) = answer["telemetry"][-1]["others"]
    assert other.startswith("1 "), "with its name"
    assert "others" not in answer["telemetry"][0]
    assert waited == [1.0, 1.0]
    assert ask(gpu, Timed(NOBODY))["telemetry"][-1]["others"] == [], "named once"


def test_one_that_came_and_went_within_a_time_is_seen_too() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    answer = ask(UndisturbedGpu(), Timed({**NOBODY, "active": [gone.pid]}, NOBODY))
    assert answer["samples_us"] == [[2.0]]
    assert answer["telemetry"][-1]["others"] == [f"process {gone.pid}"]


def test_what_this_process_started_is_no_other(waited: list[float]) -> None:
    """Also once it has ended: a baseline's process may die between two looks."""
    gpu = UndisturbedGpu()
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        grandchild = int(ours.stdout.readline())
        timed = Timed({**running(ours.pid, grandchild), "active": [ours.pid]})
        assert ask(gpu, timed)["samples_us"] == [[1.0]]
        os.kill(grandchild, 9)
        ours.kill()
    assert ask(gpu, Timed(NOBODY))["telemetry"][-1]["others"] == []
    assert waited == []


def test_a_gpu_that_others_keep_is_left_to_them(waited: list[float]) -> None:
    timed = Timed(running(STRANGER))
    with pytest.raises(
        GpuBusy, match=r"the GPU was used by 1 \S.* for 30 s while it measured: end that, or keep other"
    ):
        ask(UndisturbedGpu(), timed)
    assert timed.asked == len(waited) == 1 + MOST_WAITS


def test_processes_that_were_met_are_named_in_order(waited: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_processes, "_describe_process", lambda each: f"{each:04} stranger")
    monkeypatch.setattr(processes, "list_descendants", lambda _: [])
    pids = [3007, 20, 1111, 480, 9000, 77]
    names = [f"{each:04} stranger" for each in sorted(pids)]
    with pytest.raises(GpuBusy, match=f"the GPU was used by {', '.join(names)} for 30 s while"):
        ask(UndisturbedGpu(), Timed(*map(running, pids)))
    answer = ask(UndisturbedGpu(), Timed(running(*pids), NOBODY))
    assert answer["telemetry"][-1]["others"] == names
    assert len(waited) == 1 + MOST_WAITS + 2


def test_where_nvml_cannot_tell_the_reading_says_why() -> None:
    answer = ask(UndisturbedGpu(), Timed({**NOBODY, "unknown": "NVML: Driver Not Loaded"}))
    last = answer["telemetry"][-1]
    assert (last["others"], last["unreadable"]) == (None, {"others": "NVML: Driver Not Loaded"})


def test_an_answer_without_times_is_returned_as_it_is() -> None:
    assert "others" not in ask(UndisturbedGpu(), Timed(None))["telemetry"][-1]


def run(rig: Rig, times_us: Sequence[float] = (100.0, 99.0)) -> RunResult:
    cubins = [rig.cubin(2**number, time_us) for number, time_us in enumerate(times_us)]
    request = MeasureRequest(LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, cubins, 0, ("copy",))
    return measure(request, on_trial=lambda _: None, on_step=lambda *_: None)


def find_others(result: RunResult) -> set[str]:
    return {each for reading in result.telemetry for each in reading.get("others") or ()}


@pytest.mark.parametrize("came_at", [0, 80, 220, 300, 360])
def test_no_number_is_made_of_what_ran_beside_another_process(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch, came_at: int
) -> None:
    """It comes for more launches than the longest request has, again and again: to canaries, trials, races, rounds."""
    measure_in_this_process(monkeypatch)

    def is_there(number: int) -> bool:
        return (number - came_at) % 400 < 200

    gpu.others = lambda number: (STRANGER,) if is_there(number) else ()
    gpu.drift = lambda number: 3.0 if is_there(number) else 1.0
    result = run(rig)
    assert result.winner == {"tile_rows": 2}
    assert [set(each.samples_us) for each in result.trials] == [{100.0}, {99.0}]
    assert set(result.measurements[0].samples_us) == {99.0}
    canaries = [each["canary_compute_us"] for each in result.telemetry if "canary_compute_us" in each]
    assert canaries == [222.0, 222.0]
    assert len(find_others(result)) == 1
    assert any(launch.time_us in (297.0, 300.0, 666.0) for launch in gpu.launches), "some were slowed"


def test_a_quiet_run_says_that_it_was_alone_and_one_in_a_container_that_nobody_can_say(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_in_this_process(monkeypatch)
    looked = [reading["others"] for reading in run(rig).telemetry if "others" in reading]
    assert looked == [[]] * len(looked)
    assert len(looked) == 2 + 3, "both canaries and each block"
    gpu.other_numbers = True
    gpu.others = lambda _: (STRANGER,)
    unknown = [reading for reading in run(rig).telemetry if "others" in reading]
    assert {reading["others"] for reading in unknown} == {None}
    assert unknown[0]["unreadable"]["others"] == "NVML does not list the process that asks it"


def list_active(gpu: FakeGpu, *active: tuple[int, int, float], since_s: float = 2.0) -> Any:
    """What NVML is asked about the last `since_s`; each process with its share and how long ago that was."""
    from tilewatch.kernels.gpu.telemetry import Telemetry

    now = time.time()
    gpu.active = [(number, percent, int(1e6 * (now - ago_s))) for number, percent, ago_s in active]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: now)  # a busy machine is late by more than a sampling period
        return Telemetry(UUID).list_processes(now - since_s)["active"]


def test_who_was_active_is_asked_of_the_time_since_the_first_launch(gpu: FakeGpu) -> None:
    own = (os.getpid(), 50, 1.0)
    assert list_active(gpu, own, (4711, 3, 1.0)) == [4711]
    assert list_active(gpu, own, (4711, 3, 1.9)) == [], "a sample tells of the time before it"
    assert list_active(gpu, own, (4711, 0, 1.0)) == [], "it launched nothing"
    assert list_active(gpu, (645400, 50, 1.0), (645477, 3, 1.0)) == [], "this process has another number there"
    assert list_active(gpu, own, (4711, 3, -9.0), since_s=0.01) == [], "too short to be asked about"
    gpu.drawing = (4711,)
    assert list_active(gpu, own, (4711, 3, 1.0)) == [], "a desktop"


def test_without_samples_only_who_is_there_now_is_known(gpu: FakeGpu) -> None:
    assert list_active(gpu) == []


@pytest.mark.parametrize(("name", "shown"), [("train step", " train step"), ("\x1b[31mred", ""), ("", "")])
def test_a_name_that_a_terminal_would_obey_is_left_out(name: str, shown: str) -> None:
    rename = f"open('/proc/self/comm', 'w').write({name!r} or '\\n'); print('renamed', flush=True); input()"
    started = subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "renamed\n"
        number = started.pid
        assert other_processes._describe_process(number) == (f"{number}{shown}" if shown else f"process {number}")
    finally:
        started.communicate("\n")
    assert other_processes._describe_process(number) == f"process {number}", "it has ended"
