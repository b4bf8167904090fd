"""The real bench on a fake GPU, in real child processes: a race, launches, and a machine without CUPTI."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, Rig, install_for_children
from tilewatch.kernels.children import child_process
from tilewatch.kernels.comparing.gpu_bench import NoCupti, RealBench
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.measuring.measure import GpuMissing
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplaySide, describe_not_apart


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    install_for_children(monkeypatch)
    (tmp_path / "store").mkdir()
    return Rig(tmp_path / "store")


@pytest.fixture
def bench(rig: Rig) -> Iterator[RealBench]:
    opened = RealBench(0, rig.store_url)
    yield opened
    opened.close()


def target_of(rig: Rig, arch: str = "sm_90") -> Target:
    return Target(rig.kernel, PROBLEM, arch, None, None)


def sides(rig: Rig) -> tuple[ReplaySide, ReplaySide]:
    return ReplaySide(LIBRARY, rig.cubin(1, 100.0)), ReplaySide(LIBRARY, rig.cubin(1, 103.0))


def test_a_race_puts_the_fastest_first_and_leaves_out_what_is_wrong(rig: Rig, bench: RealBench) -> None:
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(4, 70.0, fault="off")]
    assert bench.race(target_of(rig), Library("base", LIBRARY), cubins) == ({"tile_rows": 2},)


def test_each_launch_times_both_sides(rig: Rig, bench: RealBench) -> None:
    target, (base, head) = target_of(rig), sides(rig)
    assert [bench.launch(target, base, head) for _ in range(2)] == [(100.0, 103.0)] * 2
    assert bench.gpu_s > 0


@pytest.mark.parametrize("fault", ["rests on other sets", "off on other sets"])
def test_a_side_that_is_right_on_one_set_of_inputs_is_not_compared(rig: Rig, bench: RealBench, fault: str) -> None:
    base, _ = sides(rig)
    head = ReplaySide(LIBRARY, rig.cubin(1, 50.0, fault=fault))
    with pytest.raises(
        ReplayFailed, match=r"the head side cannot be replayed \(wrong\): when it was timed, the output"
    ):
        bench.launch(target_of(rig), base, head)
    assert bench.find_not_apart(target_of(rig)) == ""


def test_a_launch_of_host_code_that_timed_itself_says_why() -> None:
    alone = {"library_runs_apart": False, "not_apart": "its host code makes its result 1 itself", "stated": ""}
    assert describe_not_apart({**alone, "stated": "it adds with PyTorch"}) == "it adds with PyTorch"
    assert describe_not_apart(alone) == "its host code makes its result 1 itself"
    assert describe_not_apart({**alone, "library_runs_apart": True}) == describe_not_apart({}) == ""


def test_without_cupti_nothing_is_compared_unless_events_are_asked_for(
    rig: Rig, bench: RealBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PASSED_ON", (*child_process.PASSED_ON, "FAKE_CUPTI"))
    monkeypatch.setenv("FAKE_CUPTI", "missing")
    with pytest.raises(NoCupti, match=r"CUPTI does not record kernel times here, .* pass --events"):
        bench.launch(target_of(rig), *sides(rig))
    by_events = RealBench(0, rig.store_url, may_use_events=True)
    try:
        base_us, head_us = by_events.launch(target_of(rig), *sides(rig))
    finally:
        by_events.close()
    assert base_us < head_us


def test_cubins_of_another_architecture_are_refused(rig: Rig, bench: RealBench) -> None:
    with pytest.raises(GpuMissing, match="but the cubins are for sm_100"):
        bench.launch(target_of(rig, "sm_100"), *sides(rig))
