"""Samples become the numbers on record: medians, their intervals and the ratio to the main baseline.

The one place that turns samples into rows, so that a run measured here and a run from a recording are alike. The
statistics themselves are kernels/statistics.py's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.statistics import median_interval, ratio_interval

MAIN_BASELINE = "deepgemm"
"""What `Measurement.ratio` is a ratio to."""


@dataclass(frozen=True)
class Sampled:
    """One implementation in a run: paired samples and how it was called. No samples: `detail["missing"]` says why."""

    implementation: str
    role: str
    config_id: int | None
    samples_us: Sequence[float]
    detail: Mapping[str, Any]


def measurement_rows(sampled: Sequence[Sampled]) -> list[dict[str, Any]]:
    """Rows for db.record.measurements.

    A baseline that could not run has no time to put on record; why it is missing goes to the kernel's own row.
    """
    theirs = next((each.samples_us for each in sampled if each.implementation == MAIN_BASELINE), ())
    missing = {each.implementation: each.detail.get("missing") for each in sampled if not each.samples_us}
    return [_row(each, theirs, missing if each.role == "kernel" else {}) for each in sampled if each.samples_us]


def trial_median_us(samples_us: Sequence[float] | None) -> float | None:
    return median_interval(samples_us).median if samples_us else None


def _row(each: Sampled, theirs_us: Sequence[float], missing: Mapping[str, Any]) -> dict[str, Any]:
    time = median_interval(each.samples_us)
    ratio = ratio_interval(each.samples_us, theirs_us)
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
        "detail": {**each.detail, **({"missing": missing} if missing else {})},
    }
