"""The confirm step: the two sides of a question beside each other on this worker's GPU, and the answer on record.

A side that has no cubin yet (an untested commit of a bisection, another compiler, a store that lost it) is compiled
first, by a job of its own on a CPU; sides that turn out to be identical machine code need no GPU at all. Every question
ends with a row, also when it cannot be answered, and the last one of a round lets the judge go on.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs, suspicions
from tilewatch.db.lifecycle.jobs import Claimed, Unsent
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.session import session
from tilewatch.db.step_queries import gpus as boards
from tilewatch.db.step_queries import judging
from tilewatch.kernels.device import SIMULATED, Gpu, gpus
from tilewatch.kernels.measuring.measure import GpuBusy, GpuMissing, MeasureFailed
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplayRequest, ReplayResult, Side, replay
from tilewatch.kernels.results import Compiled, Cubin
from tilewatch.worker import repository
from tilewatch.worker.context import Place
from tilewatch.worker.gpu import quarantine, simulated
from tilewatch.worker.gpu.simulated import Simulation
from tilewatch.worker.judging.replay_answers import CODE
from tilewatch.worker.process.heartbeat import WrongWorker, visible_gpu
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.dispatch import COMPILE, board_queue, gpu_queue
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps import compile

Payload = Mapping[str, Any]


def ask(opened: Session, payload: Payload, *, ready: bool, submission_id: int, priority: int) -> list[Unsent]:
    """Queue the job that answers a question: at once where both cubins are there, else the one that compiles."""
    kind, queue = ("confirm", _queue(payload)) if ready else ("compile", COMPILE)
    prepare, confirm = judging.job_keys(payload["key"])
    job_id, new = jobs.add(
        opened,
        key=confirm if ready else prepare,
        kind=kind,
        queue=queue,
        subject=_subject(payload),
        payload=dict(payload),
        submission_id=submission_id,
        run_id=payload["run_id"],
        total_steps=payload["launches"] if ready else 2,
        priority=priority,
    )
    return [Unsent(job_id, queue)] if new else []


def give_up(opened: Session) -> None:
    """End what was asked of a GPU that is gone: its night waits for nothing else."""
    for job in boards.stranded(opened):
        jobs.cancel(opened, [job.id])
        judge_again(opened, job.payload, job.submission_id, job.priority)


def prepare(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:
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
        outcome = _compiled(place, payload, side, side["params"])
        if outcome.status != "ok":
            said = f"the {name} side, {side['sha'][:10]}, does not compile: {outcome.failure}"
            return _unanswered(place, payload, said, job.priority)
        made[name] = {**side, **_code(outcome)}
    if not made["bad"]["measured"]:
        # Where what won before is still the same code, nothing has changed yet, whatever wins at the next measured one.
        before = _compiled(place, payload, made["bad"], made["good"]["params"])
        if before.status == "ok" and before.code_sha256 == made["good"]["code_sha256"]:
            made["bad"] = {**made["good"], "commit_id": made["bad"]["commit_id"], "sha": made["bad"]["sha"]}
    payload = {**payload, **made}
    row = _row(payload)
    with session(place.database_url) as opened:
        known = judging.launches_of_code(opened, row) > payload["start"]
    if known or row["good_code_sha256"] == row["bad_code_sha256"]:
        return _unanswered(place, payload, NOT_NEEDED, job.priority)
    with session(place.database_url) as opened:
        return ask(opened, payload, ready=True, submission_id=job.submission_id, priority=job.priority)


def step(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:
    payload = job.payload
    good, bad = payload["good"], payload["bad"]
    try:
        gpu = _own_gpu(payload, place.simulation)
        with session(place.database_url) as opened:
            quarantine.refuse_if_ill(opened, gpu.uuid)
        if gpu.model == SIMULATED:
            result = simulated.replay(
                payload["problem"],
                good["content_key"],
                bad["content_key"],
                payload["launches"],
                place.simulation,
                of=payload["key"],
            )
        else:
            result = _replay_here(payload, place, gpu, lease)
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        raise NotNow(str(error)) from error
    except (ReplayFailed, MeasureFailed) as error:
        return _unanswered(place, payload, str(error), job.priority)
    with session(place.database_url) as opened:
        quarantine.refuse_if_ill(opened, gpu.uuid)  # it may have fallen ill meanwhile, and then this says nothing
        suspicions.replay(opened, payload["key"], _row(payload, result), good_us=result.good_us, bad_us=result.bad_us)
        return judge_again(opened, payload, job.submission_id, job.priority)


def judge_again(opened: Session, payload: Payload, submission_id: int | None, priority: int) -> list[Unsent]:
    """When nothing of the round is left to be answered: a judge job for the run that asked, once per round."""
    suspicions.hold_run(opened, payload["run_id"])
    if judging.waits_for(opened, payload["round"]):
        return []
    asked = hashlib.sha256("\n".join(payload["round"]).encode()).hexdigest()[:16]
    bell, new = follow_up.add(
        opened,
        payload["run_id"],
        submission_id=submission_id,
        subject=_subject(payload),
        priority=priority,
        again=asked,
    )
    return [bell] if new else []


def _queue(payload: Payload) -> str:
    """Of the GPU that is asked about, or else of whichever is free."""
    board = payload.get("board")
    return gpu_queue(payload["gpu_model"]) if board is None else board_queue(payload["gpu_model"], board)


def _own_gpu(payload: Payload, simulation: Simulation) -> Gpu:
    model = payload["gpu_model"]
    gpu = simulated.board(simulation) if model == SIMULATED.slug else visible_gpu({model})
    if payload.get("board") not in (None, gpu.uuid):
        raise WrongWorker(f"this replay is for GPU {payload['board']}, and this worker has {gpu.uuid}")
    return gpu


def _replay_here(payload: Payload, place: Place, gpu: Gpu, lease: Lease) -> ReplayResult:
    sides = []
    for name in ("good", "bad"):
        side = payload[name]
        library = repository.checkout(place.repository, side["sha"], payload["library"], place.checkouts)
        sides.append(Side(library, Cubin(side["params"], side["content_key"], side["symbol"])))
    request = ReplayRequest(
        kernel=payload["kernel"],
        problem=payload["problem"],
        arch=payload["arch"],
        store_url=place.store_url,
        good=sides[0],
        bad=sides[1],
        launches=payload["launches"],
        gpu_index=[each.uuid for each in gpus()].index(gpu.uuid),
    )
    return replay(request, on_launch=lease.progress)


def _compiled(place: Place, payload: Payload, side: Payload, params: Mapping[str, int]) -> Compiled:
    library = repository.checkout(place.repository, side["sha"], payload["library"], place.checkouts)
    compiler = compile.open_compiler(place)
    return compiler.compile(library, payload["kernel"], payload["problem"], params, payload["arch"])


def _code(outcome: Compiled) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in CODE}


def _unanswered(place: Place, payload: Payload, why: str, priority: int) -> list[Unsent]:
    with session(place.database_url) as opened:
        suspicions.replay(opened, payload["key"], _row(payload), failure=why)
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


def _subject(payload: Payload) -> str:
    good, bad = payload["good"]["sha"][:10], payload["bad"]["sha"][:10]
    where = payload["gpu_model"] if payload.get("host") is None else f"{payload['gpu_model']} of {payload['host']}"
    return f"{payload['kernel']} {payload['problem']} on {where}: replay {good} beside {bad}"
