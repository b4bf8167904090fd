"""The sample says how far counters spread, which of it a rule would see, and how many times differ."""

import os
from pathlib import Path

import pytest

from benchmarks.gpu import counter_spread
from benchmarks.gpu.counter_spread import Sampled, find_spread, measure_spread, measure_times
from tests.kernels.fixtures.fake_gpu import LIBRARY, MODULES, PROBLEM, ROOT, UUID, Rig
from tests.kernels.fixtures.ncu import NCU_OUTPUT, make_ncu
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.measuring.sweep import GpuSetup

ONE_LAUNCH = NCU_OUTPUT.partition('"5","4242"')[0]


def sample(rig: Rig, *rows: int) -> list[Sampled]:
    cubins = [rig.cubin(each) for each in rows]
    setup = GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, {"CUDA_VISIBLE_DEVICES": UUID})
    launches = [DescribedLaunch(each.content_key, each.symbol, (1, 1, 1), (), {}) for each in cubins]
    return [
        Sampled(f"rows {each}", launch, setup, cubin)
        for each, launch, cubin in zip(rows, launches, cubins, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "values", "pct", "is_seen"),
    [
        ("instructions", (100.0, 102.0, 101.0), 200 / 101, False),
        ("instructions", (100.0, 104.0, 100.0), 4.0, True),
        ("l2_hit_pct", (50.0, 55.0, 50.0), 10.0, False),
        ("stalled_on_mma", (0.02, 0.03, 0.02), 50.0, False),
        ("stalled_on_mma", (1.0, 1.5, 1.0), 50.0, True),
        ("l2_bytes", (50.0, 90.0, 80.0), 50.0, False),
        ("spilled_bytes", (0.0, 0.0, 0.0), 0.0, False),
    ],
)
def test_a_spread_is_of_the_median_and_a_rule_sees_it_from_its_own_bound(
    name: str, values: tuple[float, ...], pct: float, is_seen: bool
) -> None:
    found = find_spread(name, "softmax 1x1", [{name: each} for each in values])
    assert (found.pct, found.is_seen) == (pytest.approx(pct), is_seen)


@pytest.mark.parametrize(("instructions", "is_seen"), [(1000.0, True), (10_000.0, False)])
def test_conflicts_count_by_their_share_of_the_instructions(instructions: float, is_seen: bool) -> None:
    passes = [{"bank_conflicts": each, "instructions": instructions} for each in (10.0, 14.0)]
    assert find_spread("bank_conflicts", "softmax 1x1", passes).is_seen is is_seen


def test_equal_passes_have_no_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{make_ncu(tmp_path / 'bin', NCU_OUTPUT)}:/usr/bin:/bin")
    rig = Rig(tmp_path / "store")
    figures = list(measure_spread(sample(rig, 1, 2), rig.store_url, UUID))
    assert [(each.what.split()[0], each.is_met) for each in figures] == [
        ("l2_hit_pct", True),
        ("instructions", True),
        ("spilled_bytes", True),
        ("spreads", True),
    ]


def test_times_that_do_not_change_do_not_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(MODULES), str(ROOT))))
    monkeypatch.setenv("PATH", f"{make_ncu(tmp_path / 'bin', ONE_LAUNCH)}:{os.environ['PATH']}")
    monkeypatch.setattr(counter_spread, "OCCASIONS", 3)
    monkeypatch.setattr(counter_spread, "REST_S", 0.0)
    rig = Rig(tmp_path / "store")
    rested, profiled = measure_times(sample(rig, 1, 2), rig.store_url, UUID)
    assert (rested.value, profiled.value, profiled.is_met) == ("0", "0", True)
    assert "6 pairs" in profiled.what
