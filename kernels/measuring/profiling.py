"""Reads hardware counters of launches with Nsight Compute. No time of a profiled launch is ever kept.

Nsight Compute runs each launch several times, with L2 emptied before each, as many counters as fit at a time. It starts
a process of ours (kernels/gpu/profiled_launches.py) that launches stored cubins and reads no library file.
"""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tilewatch import processes
from tilewatch.kernels.child_process import PASSED_ON, ROOT
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import StoreError
from tilewatch.kernels.gpu.described_launch import TIMES, DescribedLaunch
from tilewatch.kernels.gpu.host_code.described_run import Described, DescribedRun
from tilewatch.kernels.results import Measured, Params

Counts = Mapping[str, float]
"""Values by the names of tilewatch.counters; one that this GPU does not have is left out."""

_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS: Mapping[str, tuple[str, ...]] = {
    "warps_active_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "tensor_pipe_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",),
    "tensor_operations": (
        "sm__ops_path_tensor_src_fp8.sum",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
        "sm__ops_path_tensor_src_fp16.sum",
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    ),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_write_bytes": ("dram__bytes_write.sum",),
    "l2_bytes": ("lts__t_bytes.sum",),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct",),
    "tma_load_bytes": ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "instructions": ("smsp__inst_executed.sum",),
    "spilled_bytes": ("l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum"),
    "stalled_on_memory": (_STALL.format("long_scoreboard"),),
    "stalled_on_shared": (_STALL.format("short_scoreboard"), _STALL.format("mio_throttle")),
    "stalled_on_barrier": (_STALL.format("barrier"),),
    "stalled_on_mma": (_STALL.format("gmma"),),
    "stalled_on_latency": (_STALL.format("wait"),),
}
"""The sum of these metrics of Nsight Compute is a counter: "Metrics Reference" of its profiling guide."""

CYCLES = "gpc__cycles_elapsed.max"
WEIGHTS: Mapping[str, str] = {
    "warps_active_pct": CYCLES,
    "tensor_pipe_pct": CYCLES,
    "l2_hit_pct": "lts__t_bytes.sum",
    **{name: "smsp__inst_executed.sum" for name in METRICS if name.startswith("stalled_")},
}
"""Counters that are shares, and what each is a share of: an operator's is the mean of its launches' with that weight.
All others are sums."""

LIMIT_S = 60.0
LIMIT_EACH_S = 20.0
"""The start of Nsight Compute and of our process, and of each launch its inputs and its passes."""

FORBIDDEN = "ERR_NVGPUCTRPERM"
ERROR = re.compile(r"==ERROR== (.*)")


class NoCounters(Exception):
    """Counters cannot be read here; the message goes on from "no counters: "."""


def count(described: Described | str, store_url: str, gpu_uuid: str) -> tuple[Counts, ...]:
    """Returns the counters of each config, in order. Raises NoCounters, also for a sentence that says why there is
    nothing to launch."""
    if isinstance(described, str):
        raise NoCounters(described)
    output = profile(described, store_url, gpu_uuid)
    counted = read_counts(output, [_count_launches(each) for each in described])
    if len(counted) != len(described):
        raise NoCounters(find_reason(output) or f"{len(counted)} of {len(described)} configs were profiled")
    return counted


def _count_launches(described: DescribedLaunch | DescribedRun) -> int:
    return len(described.launches) if isinstance(described, DescribedRun) else 1


def profile(described: Described, store_url: str, gpu_uuid: str) -> str:
    """Returns what Nsight Compute printed. Raises NoCounters."""
    program = shutil.which("ncu")
    if program is None:
        raise NoCounters("Nsight Compute (ncu) is not installed on this machine")
    cubins = LocalCubins(store_url)
    try:
        for each in described:
            cubins.fetch(each.content_key)
        return _run(program, described, cubins.url, gpu_uuid)
    except StoreError as error:
        raise NoCounters(str(error)) from None
    finally:
        cubins.close()


def add_counts(
    measurements: Sequence[Measured],
    configs: Sequence[Params],
    described: Described | str,
    *,
    store_url: str,
    gpu_uuid: str,
) -> tuple[Measured, ...]:
    """Returns the measurements with the counters of the kernel's winner in its detail, or why there are none.

    `configs` are those that are described, the winner's first; the others tied with it.
    """
    try:
        counted = count(described, store_url, gpu_uuid)
    except NoCounters as reason:
        found: dict[str, Any] = {"no_counters": str(reason)}
    else:
        tied = [{"config": dict(config), **each} for config, each in zip(configs[1:], counted[1:], strict=True)]
        found = {"counters": dict(counted[0]), **({"tied_counters": tied} if tied else {})}
    return tuple(
        replace(each, detail={**each.detail, **found}) if each.role == "kernel" else each for each in measurements
    )


def count_pair(described: Described | str, *, store_url: str, gpu_uuid: str) -> Mapping[str, Any]:
    """Returns the counters of both sides of a replay by "good" and "bad", or why there are none by "missing"."""
    try:
        good, bad = count(described, store_url, gpu_uuid)
    except NoCounters as reason:
        return {"missing": str(reason)}
    return {"good": dict(good), "bad": dict(bad)}


def read_counts(output: str, launches: Sequence[int]) -> tuple[Counts, ...]:
    """Reads what `ncu --csv` printed: of each config, in order, the medians of its TIMES runs. `launches` are the
    numbers of launches of each.

    Empty where it profiled none, and without those that were not profiled to their end.
    """
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    values: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        launch = values.setdefault(int(row["ID"]), {})
        try:
            launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:  # "n/a": this GPU does not have it
            continue
    profiled = [values[number] for number in sorted(values)]
    counted = []
    for number in launches:
        runs = [profiled[start : start + number] for start in range(0, TIMES * number, number)]
        if len(runs[-1]) < number:
            break
        counted.append(_take_medians([_join(each) for each in runs]))
        profiled = profiled[TIMES * number :]
    return tuple(counted)


def _join(launches: Sequence[Mapping[str, float]]) -> Counts:
    """Makes one operator's counters of its launches' metrics. A counter that one of them lacks is left out."""
    named = [_name(each) for each in launches]
    if len(named) == 1:
        return named[0]
    joined = {}
    for name in METRICS:
        if all(name in each for each in named):
            weights = [each.get(WEIGHTS[name], 0.0) if name in WEIGHTS else 1.0 for each in launches]
            total = sum(weight * each[name] for weight, each in zip(weights, named, strict=True))
            joined[name] = total / (sum(weights) or 1.0) if name in WEIGHTS else total
    return joined


def _take_medians(counted: Sequence[Counts]) -> Counts:
    return {name: median(each[name] for each in counted if name in each) for name in counted[0]}


def _name(values: Mapping[str, float]) -> Counts:
    return {
        name: sum(values[each] for each in metrics if each in values)
        for name, metrics in METRICS.items()
        if any(each in values for each in metrics)
    }


def find_reason(output: str) -> str | None:
    """Says why Nsight Compute profiled nothing; None where it does not say."""
    if FORBIDDEN in output:
        return f"this user may not read the GPU's performance counters ({FORBIDDEN}): see docs/why.md"
    errors = ERROR.findall(output)
    return f"Nsight Compute: {errors[0].strip()}" if errors else None


def _run(program: str, described: Described, store_url: str, gpu_uuid: str) -> str:
    metrics = ",".join([CYCLES, *(metric for each in METRICS.values() for metric in each)])
    launches = sum(map(_count_launches, described))
    # Without clock control: it would lock the clocks of a GPU that is timed a moment later.
    profiler = [program, "--metrics", metrics, "--profile-from-start", "off", "--clock-control", "none"]
    profiler += ["--csv", "--print-units", "base", "--target-processes", "all"]
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment |= {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": gpu_uuid}
    with tempfile.TemporaryDirectory(prefix="tilewatch-profile-") as folder, tempfile.TemporaryFile() as errors:
        file = Path(folder) / "launches.json"
        file.write_text(json.dumps([each.as_json for each in described]))
        target = [sys.executable, "-P", "-m", "tilewatch.kernels.gpu.profiled_launches", str(file), store_url]
        process = processes.start([*profiler, *target], environment=environment, log=errors, stdout=subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=LIMIT_S + LIMIT_EACH_S * launches)
        except subprocess.TimeoutExpired:
            raise NoCounters("Nsight Compute did not end in time") from None
        finally:
            processes.kill_descendants(process.pid)
            processes.kill([process])
            process.stdout.close() if process.stdout else None
        printed = output.decode(errors="replace")
        if process.returncode != 0 and find_reason(printed) is None:
            raise NoCounters(f"Nsight Compute ended with {process.returncode}: {processes.last_words(process, errors)}")
    return printed
