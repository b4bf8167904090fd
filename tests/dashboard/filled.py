"""A small database with something of everything a page can meet. Every number is made, and made the same each time.

Three commits. The H200 measured all of them here, and the first two are also known from a recording; the last one came
with a newer driver and is a regression. The B200 is nobody's: its sweeps end with static facts, and the newest one is
still compiling; some of its cubins spill and lost their TMA loads. A second problem was measured once, so that its
series is a single point.
"""

import datetime as dt
import hashlib
import itertools
import json
from typing import Any

from sqlalchemy.orm import Session

from db import regressions
from db.causes import Cause, Moved, open_or_join
from db.models import (
    Alarm,
    Commit,
    Compilation,
    Config,
    GpuModel,
    Job,
    Measurement,
    Recording,
    Replay,
    Run,
    Submission,
    Suspicion,
    Sweep,
    Trial,
    Verdict,
    Worker,
)

REPOSITORY = "https://example.org/kernels.git"
MACHINE = "lab-7 (NVIDIA H200)"
KERNEL = "gemm_fp8"
PROBLEM = "320x32576x7168"
OTHER_PROBLEM = "4096x4096x4096"
SHAS = ("1a2b3c4d" + "0" * 32, "5e6f7a8b" + "0" * 32, "9c0d1e2f" + "0" * 32)
SUBJECTS = ("Walk tiles along M first", "Load B through TMA", "Let <b>two</b> blocks share an SM")
BASELINES = {"deepgemm": 118.0, "cublaslt": 126.0}
FIRST_DAY = dt.datetime(2026, 11, 18, 3, tzinfo=dt.UTC)
SLUGS = {"h200": "sm_90", "b200": "sm_100"}


def fill(session: Session, tiles: tuple[int, ...] = (64, 128, 256)) -> None:
    """Write it all; the caller commits. More tiles make larger sweeps: len(tiles) ** 3 * 2 configs each."""
    session.add_all(
        [
            GpuModel(slug="h200", name="NVIDIA H200", arch="sm_90", fp8_tflops=1979.0, bandwidth_gbps=4800.0),
            GpuModel(slug="b200", name="NVIDIA B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0),
        ]
    )
    commits = [
        Commit(
            repository=REPOSITORY,
            sha=sha,
            position=40 + i,
            committed_at=FIRST_DAY + dt.timedelta(days=i),
            subject=s,
            author="A. Author",
        )
        for i, (sha, s) in enumerate(zip(SHAS, SUBJECTS, strict=True))
    ]
    session.add_all(commits)
    recording = Recording(
        sha256="f" * 64,
        file_name="h200.jsonl.gz",
        machine=MACHINE,
        recorded_at=FIRST_DAY + dt.timedelta(days=1, hours=9),
    )
    session.add(recording)
    configs = _configs(session, tiles)
    session.flush()

    for i, commit in enumerate(commits[:2]):
        sweep = _sweep(session, commit, "h200", "recorded", tiles, recording=recording)
        _trials(session, sweep, configs, timed=True)
        _run(session, sweep, configs, slowness=1.02 - 0.02 * i, driver="580.82", recording=recording)
    for i, commit in enumerate(commits):
        sweep = _sweep(session, commit, "h200", "nightly", tiles)
        _trials(session, sweep, configs, timed=True)
        driver = "580.82" if i < 2 else "590.11"
        run = _run(session, sweep, configs, slowness=(1.0, 0.97, 1.06)[i], driver=driver)
        judged = "regression" if i == 2 else "undecided"
        session.add(
            Verdict(
                run_id=run.id,
                verdict=judged,
                change=0.093 if i == 2 else None,
                noise=0.004,
                history_points=i,
                policy="v1",
                reason="9.3 % slower than its history" if i == 2 else f"{i} points of history are too few",
            )
        )
    _regressions(session, commits)
    single = _sweep(session, commits[2], "h200", "manual", tiles, problem=OTHER_PROBLEM)
    _trials(session, single, configs, timed=True)
    _run(session, single, configs, slowness=1.4, driver="590.11")

    _trials(session, _sweep(session, commits[1], "b200", "nightly", tiles), configs, timed=False)
    compiling = _sweep(session, commits[2], "b200", "nightly", tiles)
    _trials(session, compiling, configs[: len(configs) // 3], timed=False)
    _waiting(session, compiling, configs[len(configs) // 3 :])
    cancelled = _sweep(session, commits[2], "b200", "manual", tiles, problem=OTHER_PROBLEM)
    _waiting(session, cancelled, configs)
    _queue(session, compiling, cancelled)


def _regressions(session: Session, commits: list[Commit]) -> None:
    """What the judge confirmed: one regression that nobody took yet, and an improvement that is expected."""
    runs = session.query(Run).filter_by(origin="measured").order_by(Run.id).all()
    for direction, category, sentence, size, bad in (
        ("regression", "code", "The winner's main loop has 12 more instructions: its loads lost TMA.", 0.093, 2),
        ("improvement", "toolchain", "tileiras 13.4.92 emits fewer barriers for the same source.", -0.03, 1),
    ):
        cause = Cause(
            direction=direction,
            category=category,
            sentence=sentence,
            explanation=(f"The old cubin replayed beside the new one: {100 * size:+.1f} % time.",),
            repository=REPOSITORY,
            kernel=KERNEL,
            good_commit_id=commits[bad - 1 if direction == "improvement" else 0].id,
            bad_commit_id=commits[bad].id,
        )
        moved = Moved(PROBLEM, "h200", runs[bad].id, runs[bad - 1].id, None, size, size - 0.004, size + 0.004)
        opened = open_or_join(session, cause, moved)
        if direction == "improvement":
            regressions.expect(session, opened.id, "kim@example.org", "the new compiler")
    _experiment(session, commits, runs[2])
    session.add(Alarm(key="late/b200", kind="nightly_late", subject="NVIDIA B200", detail="its nightly still compiles"))


def _experiment(session: Session, commits: list[Commit], run: Run) -> None:
    series = {"kernel": KERNEL, "problem": PROBLEM, "gpu_model": "h200"}
    between = {"good_commit_id": commits[1].id, "bad_commit_id": commits[2].id}
    suspicion = Suspicion(
        run_id=run.id,
        **series,
        **between,
        size=0.093,
        state="confirmed",
        reason="slower in 6 of 6 launches",
        launches=6,
        closed_at=run.finished_at,
    )
    session.add(suspicion)
    session.flush()
    session.add(
        Replay(
            key="replay/1",
            suspicion_id=suspicion.id,
            axis="commit",
            **series,
            **between,
            good_us=[130.0 + 0.1 * i for i in range(6)],
            bad_us=[142.0 - 0.1 * i for i in range(6)],
            good_code_sha256="a",
            bad_code_sha256="b",
            host="node-1",
            gpu_uuid="GPU-0",
            gpu_s=9.0,
            origin="measured",
        )
    )


def _configs(session: Session, tiles: tuple[int, ...]) -> list[Config]:
    names = ("tile_m", "tile_n", "tile_k", "num_ctas")
    configs = []
    for values in itertools.product(tiles, tiles, tiles, (1, 2)):
        params = dict(zip(names, values, strict=True))
        configs.append(Config(sha256=_sha256(params), params=params))
    session.add_all(configs)
    return configs


def _sweep(
    session: Session,
    commit: Commit,
    gpu_model: str,
    reason: str,
    tiles: tuple[int, ...],
    *,
    problem: str = PROBLEM,
    recording: Recording | None = None,
) -> Sweep:
    submission = Submission(
        key=f"{reason}/{commit.sha}/{gpu_model}/{problem}",
        reason=reason,
        night=commit.committed_at.date() if reason == "nightly" else None,
        commit_id=commit.id,
        gpu_model=gpu_model,
        measure=gpu_model == "h200",
        recording_id=recording.id if recording else None,
        requested_at=commit.committed_at + dt.timedelta(minutes=5 if gpu_model == "h200" else 6),
    )
    session.add(submission)
    session.flush()
    m, n, k = (int(size) for size in problem.split("x"))
    axes = [[name, list(tiles)] for name in ("tile_m", "tile_n", "tile_k")] + [["num_ctas", [1, 2]]]
    sweep = Sweep(
        submission_id=submission.id,
        commit_id=commit.id,
        kernel=KERNEL,
        problem=problem,
        gpu_model=gpu_model,
        arch=SLUGS[gpu_model],
        source_sha256=_sha256(commit.sha),
        space={"axes": axes, "tile_table": {"tile_m": 128, "tile_n": 256, "tile_k": 128, "num_ctas": 2}},
        space_size=len(tiles) ** 3 * 2,
        flops=2 * m * n * k,
        bytes=m * k + n * k + 2 * m * n,
    )
    session.add(sweep)
    session.flush()
    return sweep


def _trials(session: Session, sweep: Sweep, configs: list[Config], *, timed: bool) -> None:
    newest = session.query(Commit.id).filter_by(sha=SHAS[2]).scalar()
    for config in configs:
        p = config.params
        volume = p["tile_m"] * p["tile_n"] * p["tile_k"]
        code_key = _sha256([sweep.source_sha256, sweep.problem, p, sweep.arch])
        compilation = session.query(Compilation).filter_by(code_key=code_key).one_or_none()
        if compilation is None:
            compilation = _compilation(code_key, sweep.arch, p, volume)
            if sweep.arch == "sm_100" and sweep.commit_id == newest and p["tile_n"] == 128 and p["num_ctas"] == 1:
                compilation.stack_bytes, compilation.tma_loads = 96, 0
            session.add(compilation)
            session.flush()
        fate: dict[str, Any] = {"status": "compiled"}
        if compilation.status != "ok":
            fate = {"status": "not_compiled", "failure": compilation.failure}
        elif timed and sweep.commit_id == newest and p["tile_m"] == 128 and volume == 128 * 64 * 64:
            fate = {"status": "hung", "failure": "did not end within 10 s"}
        elif timed and p["tile_m"] == 256 and p["num_ctas"] == 2:
            fate = {"status": "wrong", "failure": "error 0.31 is over the tolerance 0.02\nat d[0, 128]", "error": 0.31}
        elif timed:
            median_us = _time_us(p) * (1.3 if sweep.commit_id == newest and volume == 64 * 64 * 64 else 1.0)
            samples_us = [median_us * (1 + 0.002 * i) for i in range(-2, 3)]
            fate = {"status": "timed", "median_us": median_us, "samples_us": samples_us, "error": 0.004}
        session.add(
            Trial(sweep_id=sweep.id, config_id=config.id, code_key=code_key, compilation_id=compilation.id, **fate)
        )
    session.flush()


def _compilation(code_key: str, arch: str, p: dict[str, int], volume: int) -> Compilation:
    common = {"code_key": code_key, "compiler": "tileiras 13.4", "arch": arch, "host": "node-1"}
    if volume >= 256**3:
        return Compilation(**common, status="timeout", failure="not compiled within 15 s", compile_s=15.0, cpu_s=15.0)
    if p["tile_k"] == 256 and p["num_ctas"] == 2 and p["tile_m"] == 64:
        failure = "error: tile of 256x64 is not legal in a cluster of 2\nnote: see the module"
        return Compilation(**common, status="error", failure=failure, compile_s=0.4, cpu_s=0.4)
    remark = {
        "pass": "tma",
        "name": "LoweredToTMA",
        "passed": True,
        "line": 41,
        "instruction": "load_view_tko",
        "shape": f"{p['tile_m']}x{p['tile_k']}",
        "text": "lowered to TMA",
    }
    return Compilation(
        **common,
        status="ok",
        content_key=code_key,
        code_sha256=code_key,
        symbol="gemm_fp8_persistent",
        registers=min(255, 64 + volume // 16384),
        stack_bytes=max(0, volume // 512 - 4096),
        shared_bytes=(p["tile_m"] + p["tile_n"]) * p["tile_k"] * 3,
        code_bytes=9000 + volume // 64,
        cubin_bytes=20000 + volume // 64,
        compile_s=0.4 + volume / 1.2e6,
        cpu_s=0.4 + volume / 1.2e6,
        tma_loads=2 if p["tile_k"] >= 128 else 1,
        loads=2,
        tensor_core_mmas=1 if p["tile_m"] >= 64 else 0,
        mmas=1,
        remarks=[remark, {**remark, "pass": "mma", "name": "TensorCore", "instruction": "mma", "text": "uses WGMMA"}],
    )


def _time_us(p: dict[str, int]) -> float:
    """A valley with its floor at 64 x 256 x 128, two blocks per cluster."""
    wanted = {"tile_m": 64, "tile_n": 256, "tile_k": 128, "num_ctas": 2}
    return 134.0 * (1 + sum(0.12 * abs((p[name] / best) - 1) for name, best in wanted.items()))


def _run(
    session: Session,
    sweep: Sweep,
    configs: list[Config],
    *,
    slowness: float,
    driver: str,
    recording: Recording | None = None,
) -> Run:
    timed = [config for config in configs if config.params["tile_m"] == 64 and config.params["tile_k"] == 128]
    winner, second = sorted(timed, key=lambda config: _time_us(config.params))[:2]
    toolchain = {"driver": driver, "cuda-tile": "1.7.0", "tileiras": "13.4.92", "harness": "0.1.0"}
    started_at = sweep.submission.requested_at + dt.timedelta(minutes=10)
    run = Run(
        key=f"run/{sweep.id}",
        sweep_id=sweep.id,
        origin="recorded" if recording else "measured",
        recording_id=recording.id if recording else None,
        host="lab-7" if recording else "node-1",
        gpu_uuid="GPU-0",
        gpu_name="NVIDIA H200",
        timer="cupti",
        toolchain=toolchain,
        toolchain_sha256=_sha256(toolchain),
        telemetry=[
            {"when": "canary before", "canary_compute_us": 220.0, "canary_memory_us": 135.0},
            *(_reading(started_at, after_s) for after_s in (0.0, 0.5, 1.0, 1.5)),
        ],
        sweep_gpu_s=21.5,
        tie=[second.id],
        started_at=started_at,
        finished_at=started_at + dt.timedelta(seconds=90),
    )
    session.add(run)
    session.flush()
    median_us = 134.0 * slowness
    _measurement(session, run, KERNEL, "kernel", median_us, ratio=BASELINES["deepgemm"] / median_us, winner=winner)
    for name, baseline_us in BASELINES.items():
        _measurement(session, run, name, "baseline", baseline_us, ratio=BASELINES["deepgemm"] / baseline_us)
    return run


def _reading(started_at: dt.datetime, after_s: float) -> dict[str, Any]:
    return {
        "when": "before rounds" if after_s == int(after_s) else "after rounds",
        "unix_s": started_at.timestamp() + after_s,
        "sm_clock_mhz": 1980 - int(60 * after_s),
        "power_w": 410.0 + 150 * after_s,
        "temperature_c": 52 + int(4 * after_s),
        "throttled": [],
    }


def _measurement(
    session: Session,
    run: Run,
    implementation: str,
    role: str,
    median_us: float,
    *,
    ratio: float,
    winner: Config | None = None,
) -> None:
    session.add(
        Measurement(
            run_id=run.id,
            implementation=implementation,
            role=role,
            config_id=winner.id if winner else None,
            samples_us=[median_us * (1 + 0.001 * i) for i in range(-10, 11)],
            median_us=median_us,
            low_us=median_us * 0.996,
            high_us=median_us * 1.005,
            ratio=ratio,
            ratio_low=ratio * 0.995,
            ratio_high=ratio * 1.004,
            baseline="deepgemm",
        )
    )


def _waiting(session: Session, sweep: Sweep, configs: list[Config]) -> None:
    for config in configs:
        code_key = _sha256([sweep.source_sha256, sweep.problem, config.params, sweep.arch])
        session.add(Trial(sweep_id=sweep.id, config_id=config.id, code_key=code_key))


def _queue(session: Session, compiling: Sweep, cancelled: Sweep) -> None:
    now = dt.datetime.now(dt.UTC)
    kinds = [
        ("compile", "compile", "running", "gemm_fp8 320x32576x7168 for sm_100, configs 19-36"),
        ("compile", "compile", "queued", "gemm_fp8 320x32576x7168 for sm_100, configs 37-54"),
        ("compile", "compile", "failed", "gemm_fp8 320x32576x7168 for sm_100, configs 1-18"),
        ("compile", "compile", "done", "gemm_fp8 320x32576x7168 for sm_100, configs 0-1"),
        ("compile", "compile", "cancelled", "gemm_fp8 4096x4096x4096 for sm_100, configs 1-54"),
        ("measure", "gpu.b200", "waiting", "gemm_fp8 320x32576x7168 on b200"),
        ("measure", "gpu.h200", "queued", "gemm_fp8 4096x4096x4096 on h200"),
        ("judge", "judge", "done", "gemm_fp8 320x32576x7168 on h200 at 9c0d1e2f"),
    ]
    for i, (kind, queue, state, subject) in enumerate(kinds):
        failed, running = state == "failed", state == "running"
        of = cancelled if state == "cancelled" else compiling
        session.add(
            Job(
                key=f"job/{i}",
                kind=kind,
                queue=queue,
                state=state,
                submission_id=of.submission_id if kind == "compile" else None,
                subject=subject,
                done_steps=7 if running else 0,
                total_steps=18,
                attempt=3 if failed else 1,
                owner="compile@node-1" if running else None,
                failure="OSError: [Errno 28] No space left on device" if failed else None,
                trace="Traceback (most recent call last):\n  OSError: [Errno 28]" if failed else None,
                started_at=now - dt.timedelta(seconds=50) if running or failed else None,
                finished_at=now - dt.timedelta(seconds=20) if failed else None,
            )
        )
    later = now + dt.timedelta(hours=1)  # a slow run of the tests must not make them silent
    session.add_all(
        [
            Worker(
                name="compile@node-1",
                kind="compile",
                host="node-1",
                doing="configs 19-36",
                toolchain={},
                seen_at=later,
            ),
            Worker(name="judge@node-1", kind="judge", host="node-1", toolchain={}, seen_at=later),
            Worker(
                name="gpu0@node-2",
                kind="gpu",
                host="node-2",
                gpu_model="h200",
                gpu_uuid="GPU-0",
                toolchain={},
                seen_at=now - dt.timedelta(hours=2),
            ),
        ]
    )


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
