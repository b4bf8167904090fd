"""The confirm step. Replays the two sides of a question on this worker's GPU and writes the answer.

Both cubins are in the store; what had none came through the prepare step. Every question ends with a row, also when it
cannot be answered, and the last one of a round lets the judge go on.
"""

from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring.measure import GpuMissing, MeasureFailed
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import quarantine
from tilewatch.worker.gpu.backend import GpuBackend, backend_for
from tilewatch.worker.gpu.visible_gpu import WrongWorker
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.queue.replay_job import ReplayJob
from tilewatch.worker.steps.write_replay import write_answer, write_failure


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    asked = ReplayJob.from_payload(job.payload)
    backend = backend_for({asked.question.gpu_model}, context)
    try:
        gpu = _gpu_that_is_asked(asked, backend)
        with session(context.database_url) as opened:
            quarantine.refuse_if_ill(opened, gpu.uuid)
        result = backend.replay(asked, gpu, on_launch=lease.progress)
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        raise NotNow(str(error)) from error
    except (ReplayFailed, MeasureFailed) as error:
        with session(context.database_url) as opened:
            return write_failure(opened, asked, str(error), job.priority)
    with session(context.database_url) as opened:
        quarantine.refuse_if_ill(opened, gpu.uuid)  # a GPU that fell ill meanwhile has measured nothing
        return write_answer(opened, asked, result, job.priority)


def _gpu_that_is_asked(asked: ReplayJob, backend: GpuBackend) -> Gpu:
    gpu = backend.own_gpu()
    if asked.question.gpu_uuid not in (None, gpu.uuid):
        raise WrongWorker(f"this replay is for GPU {asked.question.gpu_uuid}, and this worker has {gpu.uuid}")
    return gpu
