"""Computes a run's measurement rows from samples: medians, intervals and the ratio to the main baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.baselines.names import find_main
from tilewatch.kernels.statistics import median_interval, ratio_interval

MEASURED_COLUMNS = ("host", "gpu_uuid", "gpu_name", "timer", "toolchain", "telemetry", "started_at", "finished_at")
"""The columns of a run that say where, when and how it was measured."""


@dataclass(frozen=True)
class Sampled:
    """The samples of one implementation in a run. Without samples, `detail["missing"]` says why."""

    implementation: str
    role: str
    config_id: int | None
    samples_us: Sequence[float]
    detail: Mapping[str, Any]


def measurement_rows(sampled: Sequence[Sampled]) -> list[dict[str, Any]]:
    """Returns a measurement row, as a dict, for each implementation that has samples."""
    baselines = {each.implementation: each for each in sampled if each.role == "baseline" and each.samples_us}
    main = baselines.get(find_main(baselines) or "")
    missing = {each.implementation: each.detail.get("missing") for each in sampled if not each.samples_us}
    return [_row(each, main, missing if each.role == "kernel" else {}) for each in sampled if each.samples_us]


def _row(each: Sampled, main: Sampled | None, missing: Mapping[str, Any]) -> dict[str, Any]:
    time = median_interval(each.samples_us)
    ratio = ratio_interval(each.samples_us, main.samples_us) if main else None
    return {
        "implementation": each.implementation,
        "role": each.role,
        "config_id": each.config_id,
        "samples_us": list(each.samples_us),
        "median_us": time.median,
        "low_us": time.low,
        "high_us": time.high,
        "ratio": ratio.median if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "baseline": main.implementation if main and ratio else None,
        "detail": {**each.detail, **({"missing": missing} if missing else {})},
    }
