"""The confirm step: replays two versions on this worker's GPU and stores the result."""

from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.healthy_gpu import use_gpu
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.queue.payloads import read_payload
from tilewatch.worker.queue.replay_job import ReplayJob
from tilewatch.worker.steps.write_replay import write_answer, write_failure


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    asked = read_payload(ReplayJob, job.payload)
    with session(context.database_url) as opened:
        if judging.find_replay(opened, asked.question.key) is not None:  # for another night, which asked the same
            return []
        if judging.is_asked_before(opened, asked.question.key, job.id):  # else two GPUs would launch the same
            raise NotNow("another night asked for the same replay before; its answer serves both")
    try:
        with use_gpu(context, asked.question.gpu_model, asked.question.gpu_uuid) as own:
            result = own.backend.replay(asked, own.gpu, on_launch=lease.progress)
    except (ReplayFailed, MeasureFailed) as error:
        with session(context.database_url) as opened:
            write_failure(opened, asked, str(error))
            return []
    with session(context.database_url) as opened:
        write_answer(opened, asked, result)
    return []
