"""Reads the hardware counters of launches with Nsight Compute."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.gpu.described_launch import TIMES
from tilewatch.kernels.gpu.host_code.described_run import Described
from tilewatch.kernels.measuring.known_counters import Counted, Counts, identify_launch
from tilewatch.kernels.measuring.profiler import NoCounters, Profiler, count_launches, find_reason
from tilewatch.kernels.results import Measured, Params

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
    "dram_pct": ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
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
"""Maps each counter to the Nsight Compute metrics that add up to it ("Metrics Reference" of its profiling guide)."""

CYCLES = "gpc__cycles_elapsed.max"
WEIGHTS: Mapping[str, str] = {
    "warps_active_pct": CYCLES,
    "tensor_pipe_pct": CYCLES,
    "l2_hit_pct": "lts__t_bytes.sum",
    **{name: "smsp__inst_executed.sum" for name in METRICS if name.startswith("stalled_")},
}
"""Maps each counter that is a share to the metric that weights its mean over launches. Other counters are summed."""


def start_profiler(gpu_uuid: str, is_wanted: Callable[[], bool] = lambda: False) -> Profiler:
    """Starts Nsight Compute. If it is not installed, the first use raises NoCounters."""
    return Profiler(gpu_uuid, [CYCLES, *(metric for each in METRICS.values() for metric in each)], is_wanted)


def count(described: Described | str, store_url: str, gpu_uuid: str) -> tuple[Counts, ...]:
    """Returns the counters of each described config. Raises NoCounters if they cannot be read."""
    with start_profiler(gpu_uuid) as profiler:
        return count_with(profiler, described, store_url)


def count_with(profiler: Profiler, described: Described | str, store_url: str) -> tuple[Counts, ...]:
    """Reads the counters of each described config with a started profiler. Raises NoCounters if that fails."""
    if isinstance(described, str):
        raise NoCounters(described)
    output = profiler.profile(described, store_url)
    counted = read_counts(output, [count_launches(each) for each in described])
    if len(counted) != len(described):
        raise NoCounters(find_reason(output) or f"{len(counted)} of {len(described)} configs were profiled")
    return counted


def add_counts(
    measurements: Sequence[Measured],
    configs: Sequence[Params],
    described: Described | str,
    *,
    store_url: str,
    gpu: Gpu,
    known: Mapping[str, Counted],
    start: Callable[[], Profiler],
) -> tuple[Measured, ...]:
    """Returns the measurements with hardware counters, or with the reason why they are missing."""
    try:
        winner, *tied = _find_counted(described, store_url, gpu, known, start)
    except NoCounters as reason:
        found: dict[str, Any] = {"no_counters": str(reason)}
    else:
        others = [
            {"config": dict(config), **each.origin, **each.counts}
            for config, each in zip(configs[1:], tied, strict=True)
        ]
        found = {"counters": dict(winner.counts), **winner.origin, **({"tied_counters": others} if others else {})}
    return tuple(
        replace(each, detail={**each.detail, **found}) if each.role == "kernel" else each for each in measurements
    )


def _find_counted(
    described: Described | str, store_url: str, gpu: Gpu, known: Mapping[str, Counted], start: Callable[[], Profiler]
) -> list[Counted]:
    """Returns known or newly read counters of each described config. Raises NoCounters if reading fails."""
    if isinstance(described, str):
        raise NoCounters(described)
    launches = _identify(described, store_url, gpu)
    new = _count_unknown(launches, described, store_url, known, start)
    return [known.get(launch) or new[launch] for launch in launches]


def count_several(
    runs: Sequence[Described | str], *, store_url: str, gpu: Gpu, known: Mapping[str, Counted], profiler: Profiler
) -> Mapping[str, Counted]:
    """Reads the counters that are not in `known`, for several runs. Returns {} if reading fails."""
    # One start of Nsight Compute for all runs, because it takes 2 of 2.4 s per run (H100, 2026-11-26).
    described = [each for run in runs if not isinstance(run, str) for each in run]
    try:
        return _count_unknown(_identify(described, store_url, gpu), described, store_url, known, lambda: profiler)
    except NoCounters:
        return {}


def _count_unknown(
    launches: Sequence[str],
    described: Described,
    store_url: str,
    known: Mapping[str, Counted],
    start: Callable[[], Profiler],
) -> Mapping[str, Counted]:
    """Returns the counters of launches that are not in `known`, by launch."""
    unknown = {launch: each for launch, each in zip(launches, described, strict=True) if launch not in known}
    counted = count_with(start(), list(unknown.values()), store_url) if unknown else ()
    return {launch: Counted(launch, each) for launch, each in zip(unknown, counted, strict=True)}


def _identify(described: Described, store_url: str, gpu: Gpu) -> list[str]:
    """Returns each launch's hash. Raises NoCounters if the store fails."""
    codes = _find_codes([each.content_key for each in described], store_url)
    return [identify_launch(each, codes[each.content_key], gpu.uuid, gpu.driver) for each in described]


def _find_codes(content_keys: Sequence[str], store_url: str) -> Mapping[str, str]:
    """Maps each content key to the machine code's hash, or to the key itself if no hash is stored."""
    try:
        outcomes = CubinStore(store_url).outcomes(content_keys)
    except StoreError as error:
        raise NoCounters(str(error)) from None
    return {key: outcomes.get(key, {}).get("code_sha256", key) for key in content_keys}


def count_pair(described: Described | str, *, store_url: str, gpu_uuid: str) -> Mapping[str, Any]:
    """Returns the counters of two compared commits under "good" and "bad", or a reason under "missing"."""
    try:
        good, bad = count(described, store_url, gpu_uuid)
    except NoCounters as reason:
        return {"missing": str(reason)}
    return {"good": dict(good), "bad": dict(bad)}


def read_counts(output: str, launches: Sequence[int]) -> tuple[Counts, ...]:
    """Returns the counters of each config from the output of `ncu --csv`."""
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    values: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        launch = values.setdefault(int(row["ID"]), {})
        try:
            launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:  # "n/a": this GPU lacks the metric
            continue
    profiled = [values[number] for number in sorted(values)]
    counted = []
    for number in launches:
        # `number` counts the config's launches.
        runs = [profiled[start : start + number] for start in range(0, TIMES * number, number)]
        if len(runs[-1]) < number:
            break
        joined = [_join(each) for each in runs]
        counted.append({name: median(each[name] for each in joined if name in each) for name in joined[0]})
        profiled = profiled[TIMES * number :]
    return tuple(counted)


def _join(launches: Sequence[Mapping[str, float]]) -> Counts:
    """Combines the metrics of a run's launches into counters."""
    named = [_add_metrics(each) for each in launches]
    if len(named) == 1:
        return named[0]
    joined = {}
    for name in METRICS:
        if all(name in each for each in named):
            weights = [each.get(WEIGHTS[name], 0.0) if name in WEIGHTS else 1.0 for each in launches]
            total = sum(weight * each[name] for weight, each in zip(weights, named, strict=True))
            joined[name] = total / (sum(weights) or 1.0) if name in WEIGHTS else total
    return joined


def _add_metrics(values: Mapping[str, float]) -> Counts:
    return {
        name: sum(values[each] for each in metrics if each in values)
        for name, metrics in METRICS.items()
        if any(each in values for each in metrics)
    }
