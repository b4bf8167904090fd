"""The confirm step: the two sides of a question beside each other on this worker's GPU, and the answer on record.

A side that has no cubin yet (an untested commit of a bisection, another compiler, a store that lost it) is compiled
first, by a job of its own on a CPU; sides that turn out to be identical machine code need no GPU at all. Every question
ends with a row, also when it cannot be answered, and the last one of a round lets the judge go on.
"""

from collections.abc import Mapping
from typing import Any

from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.session import session
from tilewatch.db.step_queries import judging
from tilewatch.kernels.device import SIMULATED, Gpu, gpus
from tilewatch.kernels.measuring.measure import GpuBusy, GpuMissing, MeasureFailed
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplayRequest, ReplayResult, ReplaySide, replay
from tilewatch.kernels.results import Compiled, Cubin
from tilewatch.text import short_sha
from tilewatch.worker import repository
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu import quarantine, simulated
from tilewatch.worker.gpu.visible_gpu import WrongWorker, visible_gpu
from tilewatch.worker.queue.follow_up import CODE, Payload, ask, judge_again
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps import compiler


def prepare(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    """Compile what has no cubin with this machine's compiler, so that only what is asked about differs; ask a GPU."""
    assert job.submission_id is not None
    payload = job.payload
    made: dict[str, dict[str, Any]] = {}
    for done, name in enumerate(("good", "bad")):
        lease.progress(done)
        side = payload[name]
        if side["content_key"] is not None:  # as another compiler made it, which is what is asked about
            made[name] = dict(side)
            continue
        outcome = _compiled(context, payload, side, side["params"])
        if outcome.status != "ok":
            said = f"the {name} side, {short_sha(side['sha'])}, does not compile: {outcome.failure}"
            return _unanswered(context, payload, said, job.priority)
        made[name] = {**side, **_code(outcome)}
    if not made["bad"]["measured"]:
        # Where what won before is still the same code, nothing has changed yet, whatever wins at the next measured one.
        before = _compiled(context, payload, made["bad"], made["good"]["params"])
        if before.status == "ok" and before.code_sha256 == made["good"]["code_sha256"]:
            made["bad"] = {**made["good"], "commit_id": made["bad"]["commit_id"], "sha": made["bad"]["sha"]}
    payload = {**payload, **made}
    row = _row(payload)
    with session(context.database_url) as opened:
        known = judging.count_launches_of_code(opened, row) > payload["start"]
    if known or row["good_code_sha256"] == row["bad_code_sha256"]:
        return _unanswered(context, payload, NOT_NEEDED, job.priority)
    with session(context.database_url) as opened:
        return ask(opened, payload, ready=True, submission_id=job.submission_id, priority=job.priority)


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    payload = job.payload
    good, bad = payload["good"], payload["bad"]
    try:
        gpu = _own_gpu(payload, context.simulation)
        with session(context.database_url) as opened:
            quarantine.refuse_if_ill(opened, gpu.uuid)
        if gpu.model == SIMULATED:
            result = simulated.replay(
                payload["problem"],
                good["content_key"],
                bad["content_key"],
                payload["launches"],
                context.simulation,
                of=payload["key"],
            )
        else:
            result = _replay_here(payload, context, gpu, lease)
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        raise NotNow(str(error)) from error
    except (ReplayFailed, MeasureFailed) as error:
        return _unanswered(context, payload, str(error), job.priority)
    with session(context.database_url) as opened:
        quarantine.refuse_if_ill(opened, gpu.uuid)  # it may have fallen ill meanwhile, and then this says nothing
        suspicions.write_replay(
            opened, payload["key"], _row(payload, result), good_us=result.good_us, bad_us=result.bad_us
        )
        return judge_again(opened, payload, job.submission_id, job.priority)


def _own_gpu(payload: Payload, simulation: Simulation) -> Gpu:
    model = payload["gpu_model"]
    gpu = simulated.board(simulation) if model == SIMULATED.slug else visible_gpu({model})
    if payload.get("board") not in (None, gpu.uuid):
        raise WrongWorker(f"this replay is for GPU {payload['board']}, and this worker has {gpu.uuid}")
    return gpu


def _replay_here(payload: Payload, context: Context, gpu: Gpu, lease: Lease) -> ReplayResult:
    sides = []
    for name in ("good", "bad"):
        side = payload[name]
        library = repository.checkout(context.repository, side["sha"], payload["library"], context.checkouts)
        sides.append(ReplaySide(library, Cubin(side["params"], side["content_key"], side["symbol"])))
    request = ReplayRequest(
        kernel=payload["kernel"],
        problem=payload["problem"],
        arch=payload["arch"],
        store_url=context.store_url,
        good=sides[0],
        bad=sides[1],
        launches=payload["launches"],
        gpu_index=[each.uuid for each in gpus()].index(gpu.uuid),
    )
    return replay(request, on_launch=lease.progress)


def _compiled(context: Context, payload: Payload, side: Payload, params: Mapping[str, int]) -> Compiled:
    library = repository.checkout(context.repository, side["sha"], payload["library"], context.checkouts)
    return compiler.open_compiler(context).compile(
        library, payload["kernel"], payload["problem"], params, payload["arch"]
    )


def _code(outcome: Compiled) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in CODE}


def _unanswered(context: Context, payload: Payload, why: str, priority: int) -> list[UnsentJob]:
    with session(context.database_url) as opened:
        suspicions.write_replay(opened, payload["key"], _row(payload), failure=why)
        return judge_again(opened, payload, payload["submission_id"], priority)


def _row(payload: Payload, result: ReplayResult | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {name: payload[name] for name in ("kernel", "problem", "gpu_model", "axis", "suspicion_id")}
    for name in ("good", "bad"):
        side = payload[name]
        row |= {f"{name}_{each}": side[each] for each in ("commit_id", "config_id", "content_key", "code_sha256")}
        row[f"{name}_toolchain"] = side["compiler"]
    row["origin"] = payload["origin"]
    if result is None:
        return {**row, "host": None, "gpu_uuid": None, "telemetry": [], "gpu_s": 0.0}
    telemetry = [dict(each) for each in result.telemetry]
    return {
        **row,
        "host": result.host,
        "gpu_uuid": result.gpu_uuid,
        "telemetry": telemetry,
        "gpu_s": result.gpu_s,
    }
