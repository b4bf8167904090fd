"""The Celery application: queues, the clock's entries, and what a worker process does as it starts and stops.

Thin on purpose: a task opens nothing and decides nothing itself. Queues: `compile`, `judge`, and `gpu.<model>`.

    celery -A worker.app worker -Q compile    -n compile@%h -c 4
    celery -A worker.app worker -Q judge      -n judge@%h   -c 1
    celery -A worker.app worker -Q gpu.h200   -n gpu0@%h    -c 1     (CUDA_VISIBLE_DEVICES=<uuid>)
    celery -A worker.app beat -s HOME/beat
"""

import datetime as dt
import functools
import traceback
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery, signals
from celery.schedules import crontab
from sqlalchemy.exc import OperationalError

from worker import asked, counting, dispatch, logs, message, nightly, outage, sentences
from worker.dispatch import BrokerUnreachable
from worker.outage import NotNow
from worker.place import Place
from worker.presence import identify
from worker.settings import Settings
from worker.tasks import run

if TYPE_CHECKING:
    from worker.life import Life

log = structlog.get_logger()

RECONCILE_S = 60
PRUNE_HOUR = 12  # UTC; far from the nightlies of most


def _configuration() -> dict[str, Any]:
    """Read when Celery first needs it, so that importing this module asks for no server."""
    settings = Settings.load()
    night = nightly.schedule(settings.nightly_at)
    return {
        **dispatch.configuration(settings.connection().broker_url),
        "beat_schedule": {
            "nightly": {"task": "worker.nightly", "schedule": night},
            "prune": {"task": "worker.prune", "schedule": crontab(hour=PRUNE_HOUR, minute=0)},
            # A tick that waited as long as the next one is due has nothing left to say.
            "reconcile": {"task": "worker.reconcile", "schedule": RECONCILE_S, "options": {"expires": RECONCILE_S}},
        },
    }


celery = Celery("tilewatch")
celery.add_defaults(_configuration)

# One per worker; the pool's processes inherit it when they are forked.
_life: "Life | None" = None


@celery.task(name=message.RUN)  # type: ignore[untyped-decorator]  # Celery has no types
def run_job(job_id: int) -> None:
    assert _life is not None
    who = _life.identity
    place = Place.of(Settings.load())
    try:
        dispatch.send(celery, place.database_url, run(job_id, who.owner(), place, who.queues))
    except NotNow as reason:
        log.info("not now", reason=str(reason))
        _life.presence.say(str(reason))
    except (BrokerUnreachable, OperationalError) as error:
        # Before a claim, or with the job's end on record: the reconciler rings again for whatever is queued.
        log.warning("no message sent or taken", reason=outage.passing(error) or str(error))


@celery.task(name="worker.nightly")  # type: ignore[untyped-decorator]  # Celery has no types
def run_nightly() -> None:
    log.info("nightly", said=nightly.submit(Settings.load()))


@celery.task(name="worker.reconcile")  # type: ignore[untyped-decorator]  # Celery has no types
def run_reconcile() -> None:
    from worker.reconcile import reconcile

    settings = Settings.load()
    place = Place.of(settings)
    dispatch.send(celery, place.database_url, reconcile(place.database_url, place.broker_url))
    if said := nightly.catch_up(settings, dt.datetime.now(dt.UTC)):
        log.info("a night was missed", said=said)
    for said in asked.carry_out(settings):
        log.info("an action was carried out", said=said)
    _count_tick()


@celery.task(name="worker.prune")  # type: ignore[untyped-decorator]  # Celery has no types
def run_prune() -> None:
    from worker import retention

    settings = Settings.load()
    now = dt.datetime.now(dt.UTC)
    log.info("pruned", trials=retention.prune(settings.connection().database_url, settings.keep_samples_days, now))


def _set_up_logging(loglevel: int | str = "INFO", **_: Any) -> None:
    logs.set_up(loglevel)


def _count_tick() -> None:
    from worker import metrics  # counting.py has chosen the folder by now, for which the library looks when imported

    metrics.LAST_TICK.set_to_current_time()


def _learn_who_we_are(sender: str, instance: Any, **_: Any) -> None:
    """Before the pool forks, and after -Q was read. Celery swallows the exceptions of its signals, but not this one."""
    global _life
    try:
        queues = tuple(instance.app.amqp.queues.consume_from)
        settings = Settings.load()
        identity = identify(sender, queues, settings.compiler)
        counting.count_in(settings.home / "metrics" / identity.name)
        from worker.life import Life

        on_beat = _deliver_left if identity.kind == "gpu" else _nothing
        _life = Life(settings, identity, on_beat, functools.partial(_consume, instance, queues))
    except Exception as error:
        raise SystemExit(f"tilewatch: {sentences.of(error) or traceback.format_exc()}") from error


def _consume(controller: Any, queues: tuple[str, ...], wanted: bool) -> None:
    """Take from the GPU's queues or leave them, which another worker of the model may then have to itself.

    Called by another thread than the consumer's, so what Celery's own remote control does.
    """
    change = controller.consumer.add_task_queue if wanted else controller.consumer.cancel_task_queue
    for queue in queues:
        if queue.startswith(dispatch.gpu_queue("")):
            controller.consumer.call_soon(change, queue)


def _deliver_left() -> None:
    from worker.measure import deliver_left

    place = Place.of(Settings.load())
    try:
        dispatch.send(celery, place.database_url, deliver_left(place))
    except BrokerUnreachable as error:
        log.warning("no message sent", reason=str(error))


def _nothing() -> None:
    """Only a GPU worker has something to deliver."""


def _arrive(**_: Any) -> None:
    if _life is not None:
        _life.begin()


def _leave(**_: Any) -> None:
    if _life is not None:
        _life.end()


def _forked(**_: Any) -> None:
    if _life is not None:
        _life.forked()


def _close_compiler(**_: Any) -> None:
    from worker import compile

    compile.close()


signals.setup_logging.connect(_set_up_logging)
signals.celeryd_after_setup.connect(_learn_who_we_are)
signals.worker_ready.connect(_arrive)
signals.worker_shutdown.connect(_leave)
signals.worker_process_init.connect(_forked)
signals.worker_process_shutdown.connect(_close_compiler)
