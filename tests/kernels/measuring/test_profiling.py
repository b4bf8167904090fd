"""What Nsight Compute prints becomes counters by name, or a sentence that says why there are none."""

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.ncu import CUT_OUTPUT, FORBIDDEN, HEADER, NCU_OUTPUT, make_ncu, row
from tilewatch.kernels.catalog.parameters import Scalar
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.contract import Array
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.gpu.described_launch import TIMES, DescribedLaunch, read_launch
from tilewatch.kernels.gpu.host_code.described_run import Described
from tilewatch.kernels.measuring.known_counters import Counted
from tilewatch.kernels.measuring.profiler import GpuWanted, NoCounters, _wait
from tilewatch.kernels.measuring.profiling import (
    METRICS,
    add_counts,
    count,
    count_pair,
    count_several,
    read_counts,
    start_profiler,
)
from tilewatch.kernels.results import Measured
from tilewatch.mechanisms.counters import COUNTERS

ROWS = Array("x", (64, 64), "float32")
ENDS = {"dtype": "int32", "shape": [1], "base64": "AQAAAA=="}
LAUNCHES = [
    DescribedLaunch(key, "residual_add", (16, 1, 132), (ROWS, Scalar("scale", 0.5, "float32")), {"ends": ENDS})
    for key in ("aa", "bb")
]


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_ncu(tmp_path / "bin", NCU_OUTPUT)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_every_counter_has_metrics_and_a_label() -> None:
    assert list(METRICS) == [each.name for each in COUNTERS]


def test_medians_are_read_by_cubin_with_their_thousands_and_sums() -> None:
    first, second = read_counts(NCU_OUTPUT, [1, 1])
    assert first == {"instructions": 1_234_567, "l2_hit_pct": 81.25, "spilled_bytes": 5120}
    assert second == {"instructions": 2_000_000, "l2_hit_pct": 80.5}


def test_an_operator_s_launches_are_added_and_its_shares_weighted() -> None:
    """Each share by what it is of: cycles, bytes of L2, instructions."""
    shown = {
        "smsp__inst_executed.sum": (100, 300),
        "lts__t_bytes.sum": (1000, 3000),
        "lts__t_sector_hit_rate.pct": (80, 40),
        "gpc__cycles_elapsed.max": (10, 30),
        "sm__warps_active.avg.pct_of_peak_sustained_active": (20, 60),
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": (1, 3),
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": (50,),
    }
    rows = [
        row(2 * run + launch, metric, str(values[launch]))
        for run in range(TIMES)
        for launch in (0, 1)
        for metric, values in shown.items()
        if launch < len(values)
    ]
    (joined,) = read_counts(HEADER + "".join(rows), [2])
    assert joined == {
        "instructions": 400,
        "l2_bytes": 4000,
        "l2_hit_pct": 50,
        "warps_active_pct": 50,
        "stalled_on_latency": 2.5,
    }
    assert read_counts(HEADER + "".join(rows), [2, 1]) == (joined,), "the second one was not profiled"
    assert read_counts(HEADER + "".join(rows), [3]) == (), "nor all of the first"


@pytest.mark.parametrize("weights", [("0", "0"), ("n/a", "n/a"), ("n/a", "0")])
def test_a_share_of_nothing_is_zero(weights: tuple[str, str]) -> None:
    """Neither launch has moved a byte through L2, or the GPU lacks the metric."""
    rows = [
        row(2 * run + launch, metric, value)
        for run in range(TIMES)
        for launch, weight in enumerate(weights)
        for metric, value in (("lts__t_sector_hit_rate.pct", "80"), ("lts__t_bytes.sum", weight))
    ]
    (joined,) = read_counts(HEADER + "".join(rows), [2])
    assert joined["l2_hit_pct"] == 0


def test_launches_are_those_of_their_numbers_in_any_order_of_lines() -> None:
    rows = [row(number, "smsp__inst_executed.sum", str(100 * (number // TIMES))) for number in range(2 * TIMES)]
    assert read_counts(HEADER + "".join(reversed(rows)), [1, 1]) == ({"instructions": 0}, {"instructions": 100})


def test_a_run_without_counters_says_why_beside_its_kernel_alone(tmp_path: Path) -> None:
    measured = [Measured("residual_add", "kernel", (1.0,)), Measured("copy", "baseline", (1.0,))]
    kernel, baseline = add_counts(
        measured,
        [{"latency": 2}],
        "it launches 21 kernels",
        store_url=tmp_path.as_uri(),
        gpu=Gpu(0, "GPU-1", "NVIDIA H200", "580", None),
        known={},
        start=lambda: pytest.fail("nothing is profiled"),
    )
    assert kernel.detail == {"no_counters": "it launches 21 kernels"}
    assert baseline == measured[1]


def test_output_without_a_table_has_no_launches() -> None:
    assert read_counts(FORBIDDEN, [1]) == ()


def test_launches_are_profiled_in_order_and_clocks_are_left_alone(ncu: Path, tmp_path: Path) -> None:
    counted = count(LAUNCHES, tmp_path.as_uri(), "GPU-1")
    assert [each["instructions"] for each in counted] == [1_234_567, 2_000_000]
    arguments = (ncu / "arguments").read_text().splitlines()
    assert arguments[arguments.index("--clock-control") + 1] == "none"
    assert arguments[arguments.index("--profile-from-start") + 1] == "off"
    asked = json.loads((ncu / "launches").read_text())
    assert [read_launch(each) for each in asked["described"]] == LAUNCHES
    assert asked["store"] == tmp_path.as_uri()


@pytest.mark.parametrize(("codes", "launched"), [(("same", "same"), 1), (("one", "other"), 2), ((None, None), 2)])
def test_machine_code_that_tied_configs_share_is_profiled_once(
    ncu: Path, tmp_path: Path, codes: tuple[str | None, ...], launched: int
) -> None:
    """Where the store does not know a code, its name stands for it."""
    store = CubinStore(folder(tmp_path / "store"))
    for launch, code in zip(LAUNCHES, codes, strict=True):
        store.put(launch.content_key, {"code_sha256": code} if code else {}, b"a cubin")
    with start_profiler("GPU-1") as profiler:
        (kernel,) = add_counts(
            [Measured("residual_add", "kernel", (1.0,))],
            [{"latency": 2}, {"latency": 4}],
            LAUNCHES,
            store_url=store.url,
            gpu=Gpu(0, "GPU-1", "NVIDIA H200", "580", None),
            known={},
            start=lambda: profiler,
        )
    assert len(json.loads((ncu / "launches").read_text())["described"]) == launched
    winner, (tied,) = kernel.detail["counters"], kernel.detail["tied_counters"]
    assert tied["config"] == {"latency": 4}
    assert (tied["instructions"] == winner["instructions"]) == (launched == 1)


@pytest.mark.parametrize(("output", "read"), [(NCU_OUTPUT, 2), (CUT_OUTPUT, 0)])
def test_several_runs_are_counted_with_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, read: int
) -> None:
    """What one that was not read to its end leaves is not given to another one."""
    ncu = make_ncu(tmp_path / "bin", output)
    monkeypatch.setenv("PATH", f"{ncu}:/usr/bin:/bin")
    gpu, first, second = Gpu(0, "GPU-1", "NVIDIA H200", "580", None), LAUNCHES[:1], LAUNCHES[1:]
    runs = [first, "it cannot be described", second, first]

    def count_those(known: Mapping[str, Counted]) -> Mapping[str, Counted]:
        with start_profiler("GPU-1") as profiler:
            return count_several(runs, store_url=tmp_path.as_uri(), gpu=gpu, known=known, profiler=profiler)

    counted = count_those({})
    assert [each.counts["instructions"] for each in counted.values()] == [1_234_567, 2_000_000][:read]
    asked = json.loads((ncu / "launches").read_text())["described"]
    assert [read_launch(each) for each in asked] == LAUNCHES
    (ncu / "launches").unlink()
    if read:
        assert count_those(counted) == {}, "they are known"
        assert not (ncu / "launches").exists()


@pytest.mark.usefixtures("ncu")
@pytest.mark.parametrize(
    ("described", "found"),
    [
        (
            LAUNCHES,
            {
                "good": {"instructions": 1_234_567, "l2_hit_pct": 81.25, "spilled_bytes": 5120},
                "bad": {"instructions": 2_000_000, "l2_hit_pct": 80.5},
            },
        ),
        ("it launches 21 kernels", {"missing": "it launches 21 kernels"}),
        (LAUNCHES[:1] * 3, {"missing": "2 of 3 configs were profiled"}),
    ],
    ids=["both", "not described", "not profiled"],
)
def test_two_commits_have_counters_or_one_reason_why_not(
    tmp_path: Path, described: Described | str, found: Mapping[str, Any]
) -> None:
    assert count_pair(described, store_url=tmp_path.as_uri(), gpu_uuid="GPU-1") == found


@pytest.mark.usefixtures("ncu")
def test_a_profiler_that_has_nothing_to_launch_ends_with_its_run() -> None:
    with start_profiler("GPU-1") as profiler:
        assert profiler._started is not None
        process, folder = profiler._started.process, Path(profiler._started.folder.name)
        assert process.poll() is None, "it waits"
    assert process.poll() is not None
    assert not folder.exists()


@pytest.mark.usefixtures("ncu")
def test_a_profiler_has_ended_before_a_series_that_wants_the_gpu_gets_it(tmp_path: Path) -> None:
    """And whoever asks it again hears that there are no counters."""
    (tmp_path / "bin" / "ncu").write_text("#!/bin/sh\nsleep 60\n")
    with start_profiler("GPU-1", lambda: True) as profiler:
        assert profiler._started is not None
        process, folder = profiler._started.process, Path(profiler._started.folder.name)
        with pytest.raises(GpuWanted):
            profiler.profile(LAUNCHES, tmp_path.as_uri())
        assert process.poll() is not None
        assert not folder.exists()


@pytest.mark.parametrize(
    ("output", "code", "reason"),
    [
        (FORBIDDEN, 1, "may not read the GPU's performance counters"),
        ("==ERROR== Failed to prepare kernel\n", 0, "Nsight Compute: Failed to prepare kernel"),
        ("", 9, "Nsight Compute ended with 9"),
        (CUT_OUTPUT, 0, "1 of 2 configs were profiled"),
    ],
)
def test_it_says_why_there_are_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, reason: str
) -> None:
    monkeypatch.setenv("PATH", f"{make_ncu(tmp_path / 'bin', output, code)}:/usr/bin:/bin")
    with pytest.raises(NoCounters, match=reason):
        count(LAUNCHES, tmp_path.as_uri(), "GPU-1")


@pytest.mark.parametrize(
    ("left_s", "wanted", "raised"),
    [(60.0, [False, True], GpuWanted), (0.0, [], NoCounters), (60.0, [False] * 99, None)],
)
def test_a_profiler_is_waited_for_until_it_ends_or_its_time_or_somebody_else_wants_the_gpu(
    tmp_path: Path, left_s: float, wanted: list[bool], raised: type[Exception] | None
) -> None:
    """The last one ends by itself, after the first question whether the GPU is wanted."""
    asked, end = list[bool](), tmp_path / "end"
    command = f"until test -e {end}; do sleep 0.01; done; echo counted"

    def is_wanted() -> bool:
        asked.append(wanted[len(asked)])
        if raised is None:
            end.touch()
        return asked[-1]

    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as process:
        try:
            if raised is None:
                assert _wait(process, time.monotonic() + left_s, is_wanted) == b"counted\n"
            else:
                with pytest.raises(raised):
                    _wait(process, time.monotonic() + left_s, is_wanted)
                assert asked == wanted
        finally:
            end.touch()
