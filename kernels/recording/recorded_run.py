"""Converts a local sweep of configs into the rows of a recording."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tilewatch.configs import config_key
from tilewatch.kernels import tile_table
from tilewatch.kernels.device import GpuSpec
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial, RunResult


def list_rows(
    plan: Plan, commit: GitCommit, model: GpuSpec, outcomes: Sequence[tuple[PlannedTrial, Compiled]], result: RunResult
) -> Iterator[dict[str, Any]]:
    """Yields a recording's rows: one sweep, and its compilations, trials, run and measurements."""
    yield {
        "row": "sweep",
        "id": 1,
        "commit": asdict(commit),
        "gpu_model": model.stored,
        "reason": "manual",
        "night": None,
        **{name: getattr(plan, name) for name in ("kernel", "problem", "arch", "source_sha256", "flops", "bytes")},
        "space": tile_table.stored_space(plan, model.slug),
        "space_size": len(plan.trials),
    }
    for trial, outcome in {trial.code_key: (trial, outcome) for trial, outcome in outcomes}.values():
        row = outcome.make_row(trial.code_key, result.host)
        rounded = {name: round(row[name], 3) for name in ("compile_s", "cpu_s")}
        yield {"row": "compilation", **row, **rounded}
    timed = {config_key(trial.config): trial for trial in result.trials}
    for planned, outcome in outcomes:
        ran = timed.get(config_key(planned.config))
        yield {
            "row": "trial",
            "sweep": 1,
            "config": dict(planned.config),
            "code_key": planned.code_key,
            "compiler": outcome.compiler,
            "status": ran.status if ran else "compiled" if outcome.status == "ok" else "not_compiled",
            "failure": ran.failure if ran else outcome.failure,
            "samples_us": [round(sample, 3) for sample in ran.samples_us] if ran and ran.samples_us else None,
            "error": ran.error if ran else None,
        }
    yield from _list_run(result)


def _list_run(result: RunResult) -> Iterator[dict[str, Any]]:
    yield {
        "row": "run",
        "sweep": 1,
        **{name: getattr(result, name) for name in ("key", "host", "gpu_uuid", "gpu_name", "timer")},
        "toolchain": dict(result.toolchain),
        "telemetry": list(result.telemetry),
        "sweep_gpu_s": round(result.sweep_gpu_s, 3),
        "tie": [dict(config) for config in result.tie],
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
    }
    # As in the database, a baseline that could not run has no row; the kernel's row says why.
    missing = {each.implementation: each.detail.get("missing") for each in result.measurements if not each.samples_us}
    for each in result.measurements:
        if not each.samples_us:
            continue
        yield {
            "row": "measurement",
            "run": result.key,
            "implementation": each.implementation,
            "role": each.role,
            "config": None if each.config is None else dict(each.config),
            "samples_us": [round(sample, 3) for sample in each.samples_us],
            "detail": {**each.detail, **({"missing": missing} if missing and each.role == "kernel" else {})},
        }
