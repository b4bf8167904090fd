"""One commit's way through the tables, written as the steps write it; small, but with every kind of row."""

import datetime as dt
import hashlib
from dataclasses import dataclass

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from db import jobs, record, suspicions
from db.causes import Cause, Moved, open_or_join
from db.models import Alarm, Mark, Message, Run, Sweep

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
COMPILER = "cuda-tile 1.7.0 / tileiras 13.4.92"
CONFIGS = tuple({"tile_m": tile_m, "num_ctas": ctas} for tile_m in (32, 64) for ctas in (1, 2))


@dataclass(frozen=True)
class Planned:
    submission_id: int
    sweep_id: int
    config_ids: tuple[int, ...]
    code_keys: tuple[str, ...]


def submit(session: Session, key: str = "nightly/2026-11-20/b200", repository: str = "tilewatch") -> Planned:
    """A submission of one sweep with four waiting trials."""
    record.gpu_model(session, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0)
    commit_id = record.commit(
        session, repository=repository, sha="ab" * 20, position=7, committed_at=NOON, subject="Tile it"
    )
    submission_id, _ = record.submission(
        session,
        key=key,
        reason="nightly",
        night=NOON.date(),
        commit_id=commit_id,
        gpu_model="b200",
        measure=True,
    )
    sweep_id = record.sweep(
        session,
        submission_id=submission_id,
        commit_id=commit_id,
        kernel="gemm_fp8",
        problem="320x32576x7168",
        gpu_model="b200",
        arch="sm_100",
        source_sha256="cd" * 32,
        space={"axes": [["tile_m", [32, 64]], ["num_ctas", [1, 2]]]},
        space_size=len(CONFIGS),
        flops=2 * 320 * 32576 * 7168,
        bytes=320 * 7168 + 32576 * 7168,
    )
    by_sha256 = record.configs(session, CONFIGS)
    config_ids = tuple(by_sha256[record.config_sha256(config)] for config in CONFIGS)
    code_keys = tuple(f"code of {sorted(config.items())}" for config in CONFIGS)
    record.trials(session, sweep_id, list(zip(config_ids, code_keys, strict=True)))
    return Planned(submission_id, sweep_id, config_ids, code_keys)


def compiled(code_key: str, *, status: str = "ok", compiler: str = COMPILER) -> dict[str, object]:
    """A row of what came of compiling a code key."""
    ok = status == "ok"
    code = hashlib.sha256(code_key.encode()).hexdigest() if ok else None
    facts = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "cubin_bytes")
    loads = ("tma_loads", "loads", "tensor_core_mmas", "mmas")
    return {
        "code_key": code_key,
        "compiler": compiler,
        "arch": "sm_100",
        "status": status,
        "failure": None if ok else f"{status}: gave up after 15 s",
        "content_key": code,
        "code_sha256": code,
        "symbol": "gemm" if ok else None,
        **dict.fromkeys((*facts, *loads), 128 if ok else None),
        "compile_s": 1.5,
        "cpu_s": 1.25,
        "remarks": [{"pass": "tma", "line": 12, "passed": True}] if ok else [],
        "host": "node-a",
    }


def measure(session: Session, planned: Planned, key: str = "run 1") -> int:
    """A run that timed three configs, found one wrong, and measured the winner beside a baseline."""
    results = [
        {"config_id": config_id, "status": "timed", "samples_us": [9.0, 10.0], "median_us": 9.5, "error": 0.01}
        for config_id in planned.config_ids[:3]
    ]
    wrong = {"config_id": planned.config_ids[3], "status": "wrong", "samples_us": None, "median_us": None, "error": 0.9}
    record.trial_results(
        session,
        planned.sweep_id,
        [{**row, "failure": None} for row in results] + [{**wrong, "failure": "0.9 is over the tolerance 0.05"}],
    )
    run_id = record.run(
        session,
        key=key,
        sweep_id=planned.sweep_id,
        origin="measured",
        host="node-a",
        gpu_uuid="GPU-1",
        gpu_name="NVIDIA B200",
        timer="cupti",
        toolchain={"tileiras": "13.4.92", "driver": "580.65"},
        telemetry=[{"clock_mhz": 1965}],
        sweep_gpu_s=12.5,
        tie=planned.config_ids[:2],
        started_at=NOON,
        finished_at=NOON + dt.timedelta(seconds=30),
    )
    times = {"samples_us": [9.0, 9.1], "median_us": 9.05, "low_us": 9.0, "high_us": 9.1}
    ratios = {"ratio": 1.1, "ratio_low": 1.05, "ratio_high": 1.15}
    kernel = {"implementation": "gemm_fp8", "role": "kernel", "config_id": planned.config_ids[0], "detail": {}}
    baseline = {"implementation": "deepgemm", "role": "baseline", "config_id": None, "detail": {"version": "0.1.0"}}
    record.measurements(session, run_id, [{**kernel, **times, **ratios}, {**baseline, **times, **ratios}])
    record.verdict(
        session,
        run_id=run_id,
        verdict="undecided",
        change=None,
        noise=None,
        history_points=0,
        policy="1",
        reason="0 points of history, 5 wanted",
    )
    return run_id


def regress(session: Session, run_id: int) -> int:
    """A suspicion of a run, its replay, the regression that came of it, and what people hear and say of that."""
    commit_id = session.get_one(Sweep, session.get_one(Run, run_id).sweep_id).commit_id
    of = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200"}
    ends = {"good_commit_id": commit_id, "bad_commit_id": commit_id}
    suspicion_id = suspicions.opened(session, run_id=run_id, **of, **ends, size=0.05, reason="+5.0%")  # type: ignore[arg-type]  # a test's short hand
    held = {**of, **ends, "axis": "commit", "suspicion_id": suspicion_id, "gpu_s": 20.0, "origin": "measured"}
    suspicions.replay(session, "replay 1", held, good_us=[9.0, 9.1], bad_us=[9.5, 9.6])
    suspicions.closed(session, run_id, "confirmed", "replays differ by +5.0%")
    moved = Moved(of["problem"], of["gpu_model"], run_id, None, suspicion_id, 0.05, 0.04, 0.06)
    cause = Cause("regression", "code", "the commit did it", (), "tilewatch", of["kernel"], commit_id, commit_id)
    regression_id = open_or_join(session, cause, moved).id
    for table, row in (
        (Mark, {"regression_id": regression_id, "right": True, "who": "ada"}),
        (Alarm, {"key": "late", "kind": "nightly_late", "subject": "h200", "detail": "2 h late"}),
        (Message, {"key": "m", "kind": "regression", "channel": "log", "subject": "s", "body": "b"}),
    ):
        session.execute(insert(table).values(**row).on_conflict_do_nothing())
    return regression_id


def job(
    session: Session,
    key: str = "measure 1",
    state: str = "queued",
    *,
    kind: str = "measure",
    queue: str = "gpu.b200",
    priority: jobs.Priority = jobs.Priority.NIGHTLY,
) -> int:
    job_id, _ = jobs.add(
        session,
        key=key,
        kind=kind,
        queue=queue,
        priority=priority,
        subject="gemm_fp8 320x32576x7168 on b200",
        payload={"sweep": 1},
        total_steps=4,
        state=state,
    )
    return job_id
