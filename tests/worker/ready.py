"""A sweep for the simulated GPU of which everything is compiled, so that a worker needs a moment and no compiler."""

from sqlalchemy import select

from db.models import Job
from db.session import session
from tests.worker import tiny
from worker import tasks
from worker.place import Place
from worker.settings import Settings
from worker.submit import submit_sweep


def ready_sweep(settings: Settings, place: Place) -> int:
    """The measure job of a sweep for the simulated GPU, everything compiled."""
    submit_sweep(settings, tiny.KERNEL, "1024", gpus=("sim",))
    drain_compiling(place)
    with session(place.database_url) as opened:
        newest = select(Job.id).where(Job.kind == "measure").order_by(Job.id.desc()).limit(1)
        return opened.scalars(newest).one()


def drain_compiling(place: Place) -> None:
    while True:
        with session(place.database_url) as opened:
            job_id = opened.scalars(
                select(Job.id).where(Job.kind == "compile", Job.state == "queued").limit(1)
            ).one_or_none()
        if job_id is None:
            return
        tasks.run(job_id, "compiler#1", place)
