"""The step "check": times an operator at two commits in alternation until the verdict is certain."""

import math
import time
from typing import Any

from tilewatch.db.lifecycle import checks
from tilewatch.db.lifecycle.checks import OpenOperator
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.kernels.comparing.launching import NO_TIME
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.timing_order import Timing, TimingRun
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.measuring.pair_bench import NoCupti, PairWork, ReplaySide
from tilewatch.kernels.results import Cubin
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.gpu.backend import Bench
from tilewatch.worker.gpu.healthy_gpu import use_gpu
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import CheckPayload, read_payload

BUDGET_S = 240.0
"""The seconds after which a job starts no further launch. BUDGET_S + CHECKS_TURN_S (db/lifecycle/jobs.py) is below 10
minutes. A launch takes 1 to 4 s on an H200 (2026-11), so BUDGET_S is enough for the maximum of 40 launches."""

NO_CUPTI = "CUPTI does not record kernel times on its GPU, and CUDA events add 2 to 3 us to each (`tilewatch doctor`)"


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    wanted = read_payload(CheckPayload, job.payload)
    with session(context.database_url) as opened:
        asked = checks.find_open_operator(opened, wanted.operator_id)
    if asked is None:
        return []
    with use_gpu(context, asked.gpu_model) as own, own.backend.open_bench(own.gpu) as bench:
        try:
            columns = _outcome(asked, _time(asked, wanted, context, bench, lease))
        except NoCupti:
            columns = _failure(asked, NO_CUPTI)
    where = {"host": own.backend.host, "gpu_uuid": own.gpu.uuid, "gpu_s": bench.gpu_s}
    with session(context.database_url) as opened:
        checks.write_outcome(opened, asked.check_id, wanted.operator_id, {**columns, **where})
    return []


def _time(asked: OpenOperator, wanted: CheckPayload, context: Context, bench: Bench, lease: Lease) -> Timing:
    base, head = (
        ReplaySide(watched.library_at(context, wanted.repository, sha, wanted.library), cubin)
        for sha, cubin in (
            (asked.base_sha, Cubin(asked.base_config, asked.base_content_key, asked.base_symbol)),
            (asked.head_sha, Cubin(asked.head_config, asked.head_content_key, asked.head_symbol)),
        )
    )
    work = PairWork(asked.kernel, asked.problem, base, head)
    run = TimingRun([work], _design(asked), lambda _, timing: lease.progress(len(timing.base_us)))
    deadline = time.monotonic() + BUDGET_S
    run.run(bench, lambda: time.monotonic() > deadline)
    (timing,) = run.timings.values()
    return timing


def _design(asked: OpenOperator) -> Design:
    return Design(asked.changed, fail_over=asked.fail_over)


def _failure(asked: OpenOperator, reason: str) -> dict[str, Any]:
    outcome = Outcome(asked.kernel, asked.problem, "", "failed", reason)
    return {"kind": outcome.kind, "reason": reason, "sentence": outcome.sentence, "is_unsure": True}


def _outcome(asked: OpenOperator, timing: Timing) -> dict[str, Any]:
    verdict = timing.judge(_design(asked))
    if timing.failure is not None or verdict is None:
        return _failure(asked, timing.failure or NO_TIME)
    outcome = Outcome(asked.kernel, asked.problem, "", verdict.kind, verdict=verdict, not_apart=timing.not_apart)
    ends = {name: getattr(verdict, name) for name in ("change", "low", "high", "not_slower_than")}
    return {
        "kind": verdict.kind,
        "sentence": outcome.sentence,
        "not_apart": outcome.not_apart,
        **{name: value if math.isfinite(value) else None for name, value in ends.items()},
        "is_over": verdict.is_over,
        "is_unsure": outcome.is_unsure,
        "base_us": list(timing.base_us),
        "head_us": list(timing.head_us),
    }
