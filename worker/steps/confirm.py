"""The confirm step. Replays the two sides of a question on this worker's GPU and writes the answer.

Both cubins are in the store; what had none came through the prepare step. Every question ends with a row, also when it
cannot be answered, and the last one of a round lets the judge go on.
"""

from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.healthy_gpu import use_gpu
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.replay_job import ReplayJob
from tilewatch.worker.steps.write_replay import write_answer, write_failure


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    asked = ReplayJob.from_payload(job.payload)
    try:
        with use_gpu(context, asked.question.gpu_model, asked.question.gpu_uuid) as own:
            result = own.backend.replay(asked, own.gpu, on_launch=lease.progress)
    except (ReplayFailed, MeasureFailed) as error:
        with session(context.database_url) as opened:
            return write_failure(opened, asked, str(error), job.priority)
    with session(context.database_url) as opened:
        return write_answer(opened, asked, result, job.priority)
