"""A made run of the tiny library: what a GPU would have said, so that what follows it can be tested without one."""

import datetime as dt

from kernels.results import Measured, RunResult, TrialResult

STARTED_AT = dt.datetime(2026, 11, 1, 3, 0, tzinfo=dt.UTC)


def result(*, slowness: float = 1.0, minute: int = 0) -> RunResult:
    """Width 128 wins, 64 is wrong; DeepGEMM takes 90 us throughout, cuBLASLt is missing."""
    started_at = STARTED_AT + dt.timedelta(minutes=minute)
    ours = tuple(100.0 * slowness + wobble for wobble in (0.0, 0.2, -0.1, 0.1, -0.2, 0.05, -0.05))
    theirs = (90.0, 90.1, 89.9, 90.0, 90.2, 89.8, 90.0)
    return RunResult(
        host="n1",
        gpu_model="h200",
        gpu_uuid="GPU-1",
        gpu_name="NVIDIA H200",
        timer="cupti",
        toolchain={"driver": "580.1", "cuda-tile": "1.7.0"},
        telemetry=({"when": "before", "clock_mhz": 1980},),
        sweep_gpu_s=3.5,
        winner={"width": 128},
        tie=({"width": 256},),
        trials=(
            TrialResult({"width": 64}, "wrong", error=0.5, failure="largest error 0.5"),
            TrialResult({"width": 128}, "timed", ours[:3], 100.0 * slowness, 1e-7),
            TrialResult({"width": 256}, "timed", (101.0, 102.0), 101.5, 1e-7),
        ),
        measurements=(
            Measured("double", "kernel", ours, {"width": 128}, {"rounds": 7}),
            Measured("deepgemm", "baseline", theirs, None, {"version": "0.1.0"}),
            Measured("cublaslt", "baseline", (), None, {"missing": "no torch"}),
        ),
        started_at=started_at,
        finished_at=started_at + dt.timedelta(seconds=30),
    )
