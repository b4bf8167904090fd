"""Queues the jobs that follow the end of a job or the writing of a run."""

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.worker_reads import judging, steps
from tilewatch.db.worker_reads.steps import SweepFacts
from tilewatch.worker.queue.dispatch import COMPILE, JUDGE, gpu_queue, one_gpu_queue
from tilewatch.worker.queue.payloads import write_payload
from tilewatch.worker.queue.replay_job import BuildQuestion, ReplayJob


def queue_next(session: Session, job: ClaimedJob) -> list[UnsentJob]:
    """Queues the jobs that waited for the end of this job, and returns the jobs to send. Call it in a transaction of
    its own, after the end of the job is committed."""
    # In a transaction of its own, so that the later of two jobs that end at once sees both ends.
    if job.kind == "compile":
        ready = steps.list_ready_to_measure(session, job.submission_id, job.payload.get("kernel"))
        return jobs.release(session, ready)
    if job.kind in ("measure", "prepare", "confirm", "judge"):
        return judge_the_rest(session, job.submission_id)
    if job.check_id is not None:
        checks.end_stranded(session)
    return []


def add_judge_job(
    session: Session, run_id: int, *, submission_id: int | None, subject: str, priority: int, again: str | None = None
) -> tuple[UnsentJob, bool]:
    """Adds a run's judge job, once for each value of `again`. Returns the job and whether it is new."""
    job_id, new = jobs.add(
        session,
        key=f"judge:{run_id}" if again is None else f"judge:{run_id}:{again}",
        kind="judge",
        queue=JUDGE,
        subject=subject,
        payload={},
        submission_id=submission_id,
        run_id=run_id,
        priority=priority,
    )
    return UnsentJob(job_id, JUDGE), new


def judge_the_rest(session: Session, submission_id: int | None = None) -> list[UnsentJob]:
    """Queues a judge job for each night that still has unjudged runs but no open job. Returns the jobs to send."""
    added = [
        add_judge_job(
            session,
            night.run_id,
            submission_id=night.submission_id,
            subject=night.subject,
            priority=night.priority,
            again=f"the rest after {night.ended_at}",
        )
        for night in judging.list_unjudged_nights(session, submission_id)
    ]
    return [unsent for unsent, new in added if new]


def judge_run(session: Session, facts: SweepFacts, run_id: int, priority: int) -> UnsentJob:
    """Queues the judge job of a new run, and returns the job to send."""
    subject = f"{facts.kernel} {facts.problem} on {facts.gpu_model}"
    unsent, _ = add_judge_job(session, run_id, submission_id=facts.submission_id, subject=subject, priority=priority)
    return unsent


def ask(session: Session, asked: ReplayJob, priority: int) -> list[UnsentJob]:
    """Queues the job of a replay: "confirm" if both versions are compiled, else "prepare". Returns the jobs to send."""
    question, ready = asked.question, asked.question.is_compiled
    queue = _gpu_queue_of(question) if ready else COMPILE
    # A second night gets its own job, because the end of a job only starts the judge of the job's own night.
    for key in (question.key, judging.own_key(question.key, asked.submission_id)):
        job_id, new = jobs.add(
            session,
            key=judging.job_keys(key)[ready],
            kind="confirm" if ready else "prepare",
            queue=queue,
            subject=question.subject,
            payload=write_payload(asked),
            submission_id=asked.submission_id,
            run_id=asked.run_id,
            total_steps=question.launches if ready else 2,
            priority=priority,
        )
        if new:
            return [UnsentJob(job_id, queue)]
        if judging.is_of_night(session, job_id, asked.submission_id):
            break
    return []


def _gpu_queue_of(question: BuildQuestion) -> str:
    """Returns the queue for a replay: of one GPU if the replay names a GPU, else of the GPU model."""
    if question.gpu_uuid is None:
        return gpu_queue(question.gpu_model)
    return one_gpu_queue(question.gpu_model, question.gpu_uuid)
