"""Converts a local sweep into the rows of a recording."""

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
    """Yields the rows of a sweep, its compilations and trials, its run and measurements, for recording_file.write."""
    yield {
        "row": "sweep",
        "id": 1,
        "commit": asdict(commit),
        "gpu_model": model.stored,
        "reason": "manual",
        "night": None,
        "kernel": plan.kernel,
        "problem": plan.problem,
        "arch": plan.arch,
        "source_sha256": plan.source_sha256,
        "space": tile_table.stored_space(plan, model.slug),
        "space_size": len(plan.trials),
        "flops": plan.flops,
        "bytes": plan.bytes,
    }
    for trial, outcome in {trial.code_key: (trial, outcome) for trial, outcome in outcomes}.values():
        yield _make_compilation(trial, outcome, result.host)
    timed = {config_key(trial.config): trial for trial in result.trials}
    for planned, outcome in outcomes:
        ran = timed.get(config_key(planned.config))
        yield {
            "row": "trial",
            "sweep": 1,
            "config": dict(planned.config),
            "code_key": planned.code_key,
            "compiler": outcome.compiler,
            "status": ran.status if ran else "not_compiled",
            "failure": ran.failure if ran else outcome.failure,
            "samples_us": [round(sample, 3) for sample in ran.samples_us] if ran and ran.samples_us else None,
            "error": ran.error if ran else None,
        }
    yield from _list_run(result)


def _make_compilation(trial: PlannedTrial, outcome: Compiled, host: str) -> dict[str, Any]:
    facts = asdict(outcome.facts) if outcome.facts else {}
    columns = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "cubin_bytes")
    counts = ("tma_loads", "loads", "tensor_core_mmas", "mmas")
    return {
        "row": "compilation",
        "code_key": trial.code_key,
        "compiler": outcome.compiler,
        "arch": outcome.arch,
        "status": outcome.status,
        "failure": outcome.failure,
        "content_key": outcome.content_key,
        "code_sha256": outcome.code_sha256,
        "symbol": outcome.symbol,
        **{name: facts.get(name) for name in (*columns, *counts)},
        "compile_s": round(outcome.compile_s, 3),
        "cpu_s": round(outcome.cpu_s, 3),
        "remarks": list(facts.get("remarks", ())),
        "host": host,
    }


def _list_run(result: RunResult) -> Iterator[dict[str, Any]]:
    key = f"{result.host}:{result.gpu_uuid}:{result.started_at.isoformat()}"
    yield {
        "row": "run",
        "key": key,
        "sweep": 1,
        "host": result.host,
        "gpu_uuid": result.gpu_uuid,
        "gpu_name": result.gpu_name,
        "timer": result.timer,
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
            "run": key,
            "implementation": each.implementation,
            "role": each.role,
            "config": None if each.config is None else dict(each.config),
            "samples_us": [round(sample, 3) for sample in each.samples_us],
            "detail": {**each.detail, **({"missing": missing} if missing and each.role == "kernel" else {})},
        }
