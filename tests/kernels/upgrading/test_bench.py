"""The bench of pairs on a fake GPU, in real child processes: several pairs share a process, and one that dies is not
the others' end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, THIS_GPU, Rig, install_for_children
from tilewatch.kernels import child_process
from tilewatch.kernels.comparing.gpu_bench import NoCupti
from tilewatch.kernels.measuring import replay
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.upgrading.bench import GpuPairBench, Launched, LaunchFailed, PairWork


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    install_for_children(monkeypatch)
    monkeypatch.setattr(replay, "MOST_AHEAD", 1)
    (tmp_path / "store").mkdir()
    return Rig(tmp_path / "store")


@pytest.fixture
def bench(rig: Rig) -> Iterator[GpuPairBench]:
    with GpuPairBench(LIBRARY, THIS_GPU, rig.store_url) as opened:
        yield opened


def work(rig: Rig, a: Cubin, b: Cubin, problem: str = PROBLEM) -> PairWork:
    return PairWork(rig.kernel, problem, a, b)


def test_pairs_of_several_problems_share_one_process(
    rig: Rig, bench: GpuPairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[None] = []
    start = replay.ProcessesAhead._start
    monkeypatch.setattr(replay.ProcessesAhead, "_start", lambda ahead: (started.append(None), start(ahead))[1])
    works = [
        work(rig, rig.cubin(1, 100.0), rig.cubin(1, 103.0)),
        work(rig, rig.cubin(2, 50.0), rig.cubin(4, 40.0), "32x64"),
    ]
    results = [result for _, result in bench.launch_each(works)]
    assert results == [Launched(100.0, 103.0), Launched(50.0, 40.0)]
    assert len(started) == 2, "the one that was taken, and the one that waits for the next pairs"


def test_a_side_that_fails_is_named_and_the_next_pair_goes_on(rig: Rig, bench: GpuPairBench) -> None:
    good = rig.cubin(1, 100.0)
    works = [
        work(rig, good, rig.cubin(1, fault="off")),
        work(rig, rig.cubin(2, fault="off"), good),
        work(rig, good, rig.cubin(1, fault="abort")),
        work(rig, good, rig.cubin(1, fault="fault")),
        work(rig, good, good),
    ]
    wrong, of_a, dead, faulty, fine = (result for _, result in bench.launch_each(works))
    assert isinstance(wrong, LaunchFailed)
    assert wrong.failure.startswith("gives wrong results: the output is off by")
    assert (wrong.is_of_b, wrong.is_final) == (True, True)
    assert isinstance(of_a, LaunchFailed)
    assert of_a.failure.startswith("with A it gives wrong results: ")
    assert not of_a.is_of_b
    assert dead == LaunchFailed("ends its GPU process: SIGABRT", is_of_b=True, is_final=False)
    assert isinstance(faulty, LaunchFailed)
    assert (faulty.failure[:17], faulty.is_final) == ("faults on the GPU", False)
    assert fine == Launched(100.0, 100.0)


def test_without_cupti_nothing_is_timed_unless_events_are_asked_for(
    rig: Rig, bench: GpuPairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PASSED_ON", (*child_process.PASSED_ON, "FAKE_CUPTI"))
    monkeypatch.setenv("FAKE_CUPTI", "missing")
    pair = work(rig, rig.cubin(1, 100.0), rig.cubin(1, 103.0))
    with pytest.raises(NoCupti, match="pass --events"):
        list(bench.launch_each([pair]))
    with GpuPairBench(LIBRARY, THIS_GPU, rig.store_url, may_use_events=True) as by_events:
        ((_, result),) = by_events.launch_each([pair])
    assert isinstance(result, Launched)
    assert result.a_us < result.b_us
