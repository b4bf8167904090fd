"""The Celery application: its tasks, their schedule, and the start and end of a worker process.

Tasks import modules only when they run, so that each worker loads few modules. These commands start workers for the
queues. A GPU worker also takes jobs from the queue of its own GPU, `gpu.<model>@<uuid>`.

    celery -A tilewatch.worker.app worker -Q compile    -n compile@%h -c 4
    celery -A tilewatch.worker.app worker -Q record     -n record@%h  -c 2     (with the packages of host code)
    celery -A tilewatch.worker.app worker -Q judge      -n judge@%h   -c 1
    celery -A tilewatch.worker.app worker -Q tell       -n tell@%h    -c 1     (with the forge's token)
    celery -A tilewatch.worker.app worker -Q gpu.h200   -n gpu0@%h    -c 2     (CUDA_VISIBLE_DEVICES=<uuid>)
    celery -A tilewatch.worker.app beat -s HOME/beat
"""

import contextlib
import datetime as dt
import functools
import os
import signal
import threading
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery, signals
from celery.schedules import crontab
from celery.worker import state
from sqlalchemy.exc import OperationalError

from tilewatch import errors, processes
from tilewatch.db import fact_writes, migrate
from tilewatch.db.migrate import OtherRelease
from tilewatch.db.session import session
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring.gpu_turn import OWN_ROOT
from tilewatch.nightlies import SUBMIT_PATIENCE, due_night
from tilewatch.worker import logs
from tilewatch.worker.context import Context
from tilewatch.worker.process import metrics_folder, stopping, ticks
from tilewatch.worker.process.identity import identify
from tilewatch.worker.process.intake import Intake
from tilewatch.worker.queue import dispatch, outage, task_message
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.run_job import run
from tilewatch.worker.settings import Settings, find_bad_home

if TYPE_CHECKING:
    from tilewatch.worker.notify.outbox import Outbox
    from tilewatch.worker.process.lifecycle import Lifecycle

log = structlog.get_logger()

RECONCILE_S = 60
TELL_S = 30
WATCH_S = 300
CODE_S = 60
CODE_BUDGET_S = 20
"""The longest time in seconds that a compile worker compares code before it takes the next job."""
BEAT_WAKES_S = 5
"""The most seconds that beat sleeps. A process that sleeps for a minute counts as stuck (worker/local/children.py)."""
PRUNE_HOUR = 12  # UTC; far from the nightlies of most


def _configuration() -> dict[str, Any]:
    """Returns Celery's settings. Celery calls this function on first use, so that an import needs no server."""
    settings = Settings.load()
    night = crontab(hour=settings.nightly_at.hour, minute=settings.nightly_at.minute)
    on_notify_queue = {"queue": dispatch.NOTIFY_QUEUE}
    return {
        **dispatch.configuration(settings.connection().broker_url),
        "beat_scheduler": "tilewatch.worker.process.ticks:Scheduler",
        "beat_max_loop_interval": BEAT_WAKES_S,
        "beat_schedule": {
            "nightly": {"task": "worker.nightly", "schedule": night},
            "prune": {"task": "worker.prune", "schedule": crontab(hour=PRUNE_HOUR, minute=0)},
            "reconcile": {"task": "worker.reconcile", "schedule": RECONCILE_S},
            "tell": {"task": dispatch.NOTIFY_TASK, "schedule": TELL_S, "options": on_notify_queue},
            "watch": {"task": "worker.watch", "schedule": WATCH_S, "options": on_notify_queue},
            "mend tables": {"task": "worker.mend_tables", "schedule": WATCH_S, "options": on_notify_queue},
            "compare code": {
                "task": "worker.compare_code",
                "schedule": CODE_S,
                "options": {"queue": dispatch.COMPILE},
            },
        },
    }


celery = Celery("tilewatch")
celery.add_defaults(_configuration)

# One per worker; the pool's processes inherit it when they are forked.
_lifecycle: "Lifecycle | None" = None


@celery.task(name=task_message.RUN)  # type: ignore[untyped-decorator]  # Celery has no types
def run_job(job_id: int) -> None:
    assert _lifecycle is not None
    who = _lifecycle.identity
    context = Context.of(Settings.load())
    try:
        migrate.require_head(context.database_url)  # the heartbeat closes the queues, but up to 15 s later
        dispatch.send(celery, context.database_url, run(job_id, who.owner(), context, who.queues, stopping.is_stopping))
        if dispatch.JUDGE in who.queues:
            dispatch.wake_outbox(celery, context.database_url)
    except NotNow as reason:
        log.info("not now", reason=str(reason))
        _lifecycle.heartbeat.write(str(reason))
    except OtherRelease as reason:
        log.warning("no job taken", reason=str(reason))
    except (BrokerUnreachable, OperationalError) as error:
        # No job was claimed, or its end is stored: the reconciler sends the messages of queued jobs again.
        log.warning("no message sent or taken", reason=outage.passing(error) or str(error))


@celery.task(name=dispatch.COUNT_TASK)  # type: ignore[untyped-decorator]  # Celery has no types
def run_read_counters() -> None:
    """Reads hardware counters that recent runs still lack, if no job needs the GPU or the counters are overdue."""
    from tilewatch.db.worker_reads import steps
    from tilewatch.worker.gpu import uncounted

    assert _lifecycle is not None
    gpu, context = _lifecycle.identity.gpu, Context.of(Settings.load())
    assert gpu is not None, "only a GPU worker takes from the queue of one GPU"
    waiting = uncounted.list_waiting(context.uncounted, gpu)
    with session(context.database_url) as opened:
        is_busy = steps.is_any_due(opened, _lifecycle.identity.queues)
    if waiting and (not is_busy or uncounted.is_overdue(waiting)):
        uncounted.read_counters(context.uncounted, gpu, context.store_url, functools.partial(_write_counters, context))


def _write_counters(context: Context, run_key: str, found: Mapping[str, Any]) -> bool:
    with session(context.database_url) as opened:
        return fact_writes.write_counters(opened, run_key, found)


@celery.task(name="worker.nightly")  # type: ignore[untyped-decorator]  # Celery has no types
def run_nightly() -> None:
    from tilewatch.worker.submitting import schedule

    settings = Settings.load()
    night = due_night(dt.datetime.now(dt.UTC), settings, -SUBMIT_PATIENCE)  # yesterday's, if it is late at midnight
    for outcome in schedule.submit(settings, night):
        log.info("nightly", outcome=outcome)


@celery.task(name="worker.reconcile")  # type: ignore[untyped-decorator]  # Celery has no types
@ticks.skip_repeated
def run_reconcile() -> None:
    from tilewatch.worker import metrics
    from tilewatch.worker.queue.reconcile import reconcile
    from tilewatch.worker.submitting import schedule, submit_requests

    settings = Settings.load()
    context = Context.of(settings)
    dispatch.send(celery, context.database_url, reconcile(context.database_url, context.broker_url))
    for outcome in schedule.catch_up(settings, dt.datetime.now(dt.UTC)):
        log.info("a night was missed", outcome=outcome)
    for outcome in submit_requests.carry_out(settings):
        log.info("an action was carried out", outcome=outcome)
    metrics.LAST_TICK.set_to_current_time()


@celery.task(name=dispatch.NOTIFY_TASK)  # type: ignore[untyped-decorator]  # Celery has no types
def run_tell() -> None:
    """Writes and sends messages."""
    from tilewatch.worker.notify import outbox

    # A repeated call is not skipped: other workers call this too, and a skipped call left a change unsent for up to
    # 30 s (2026-11-23). An empty call costs one query.
    out = _outbox()
    if out is not None:
        outbox.write_and_send(out, dt.datetime.now(dt.UTC))


@celery.task(name="worker.watch")  # type: ignore[untyped-decorator]  # Celery has no types
@ticks.skip_repeated
def run_watch() -> None:
    from tilewatch.worker.git import watched
    from tilewatch.worker.notify.update_alarms import update_alarms

    settings, out = Settings.load(), _outbox()
    if out is not None:
        names = watched.list_names(out.database_url, settings)
        changes = update_alarms(out, names, settings, settings.regret_limit, dt.datetime.now(dt.UTC))
        log.info("updated alarms", opened=[alarm.key for alarm in changes.to_open], closed=list(changes.to_close))


@celery.task(name="worker.mend_tables")  # type: ignore[untyped-decorator]  # Celery has no types
@ticks.skip_repeated
def run_mend_tables() -> None:
    from tilewatch.worker.notify.mend_tables import mend_all

    try:
        mend_all(Settings.load())
    except errors.ExpectedError as error:
        log.error("no tuned table can be mended", reason=str(error))


@celery.task(name="worker.compare_code")  # type: ignore[untyped-decorator]  # Celery has no types
@ticks.skip_repeated
def run_compare_code() -> None:
    from tilewatch.worker.comparing import winner_code_diffs

    context = Context.of(Settings.load())
    compared = winner_code_diffs.compare_new_winners(context.database_url, context.store_url, CODE_BUDGET_S)
    if compared.runs:
        log.info("compared the code of winners", runs=compared.runs, pairs=compared.pairs)


def _outbox() -> "Outbox | None":
    """Returns the outbox for messages, or None if notify.toml is invalid. Messages then wait."""
    from tilewatch.worker.notify.outbox import Outbox
    from tilewatch.worker.notify.routing import BadNotifySettings

    try:
        return Outbox.of(Settings.load())
    except BadNotifySettings as error:
        log.error("no message can be sent", reason=str(error))
        return None


@celery.task(name="worker.prune")  # type: ignore[untyped-decorator]  # Celery has no types
def run_prune() -> None:
    from tilewatch.worker.submitting import schedule

    settings = Settings.load()
    now = dt.datetime.now(dt.UTC)
    log.info("pruned", trials=schedule.prune(settings.connection().database_url, settings.keep_samples_days, now))


def _set_up_logging(loglevel: int | str = "INFO", **_: Any) -> None:
    logs.set_up(loglevel)


def _set_up_worker(sender: str, instance: Any, **_: Any) -> None:
    """Makes the worker's Lifecycle. Raises SystemExit for any error, because Celery ignores other exceptions here."""
    global _lifecycle
    processes.forbid_inspection()  # the pool's processes inherit it
    try:
        queues = tuple(instance.app.amqp.queues.consume_from)
        settings = Settings.load()
        identity = identify(sender, queues, Context.of(settings), settings.compiler)
        for queue in set(identity.queues) - set(queues):
            instance.app.amqp.queues.select_add(instance.app.amqp.queues[queue])
        metrics_folder.count_in(settings.home / "metrics" / identity.name)
        from tilewatch.worker.process.lifecycle import Lifecycle

        # no runs wait on the disk of a machine without a GPU
        on_beat = functools.partial(_deliver_waiting, identity.gpu) if identity.gpu is not None else lambda: None
        if identity.gpu is not None:
            os.environ[OWN_ROOT] = str(os.getpid())
        _lifecycle = Lifecycle(
            settings, identity, on_beat, Intake(identity.queues, functools.partial(_consume, instance)), _list_busy
        )
    except Exception as error:
        raise SystemExit(
            f"tilewatch: {find_bad_home(error) or errors.sentence(error) or traceback.format_exc()}"
        ) from error


def _consume(controller: Any, queue: str, wanted: bool) -> None:
    """Makes this worker take jobs from a queue, or stop doing so. Any thread may call this."""
    change = controller.consumer.add_task_queue if wanted else controller.consumer.cancel_task_queue
    controller.consumer.call_soon(change, queue)


def _list_busy() -> dict[int, str]:
    """Returns the task name of each busy process of the pool, by process id."""
    while True:
        with contextlib.suppress(RuntimeError):  # another thread changed the set meanwhile
            return {each.worker_pid: each.name for each in state.active_requests.copy() if each.worker_pid}


def _deliver_waiting(gpu: Gpu) -> None:
    """Writes runs that wait on this machine's disk to the database, and starts the reading of hardware counters."""
    from tilewatch.worker.gpu import uncounted
    from tilewatch.worker.steps.write_run import deliver_spooled

    context = Context.of(Settings.load())
    try:
        dispatch.send(celery, context.database_url, deliver_spooled(context.spool, context.database_url))
        if gpu.model is not None and uncounted.list_waiting(context.uncounted, gpu):
            dispatch.read_counters(celery, gpu.model.slug, gpu.uuid)
    except BrokerUnreachable as error:
        log.warning("no message sent", reason=str(error))


def _start(**_: Any) -> None:
    _mark_before_cold_stop()
    if _lifecycle is not None:
        _lifecycle.start()


def _stop(**_: Any) -> None:
    if _lifecycle is not None:
        _lifecycle.stop()


def _drain(how: str, **_: Any) -> None:
    """Turns a warm shutdown into a cold shutdown after `drain_s` seconds, so that the running job is handed back."""
    stopping.mark()
    if how == "Warm":
        timer = threading.Timer(Settings.load().drain_s, os.kill, (os.getpid(), signal.SIGQUIT))
        timer.daemon = True
        timer.start()


def _mark_before_cold_stop() -> None:
    """Makes SIGQUIT call `stopping.mark` before Celery's handler ends the pool (Celery 5.7.0)."""
    installed = signal.getsignal(signal.SIGQUIT)

    def stop(number: int, frame: Any) -> None:
        stopping.mark()
        if callable(installed):
            installed(number, frame)

    signal.signal(signal.SIGQUIT, stop)


def _forked(**_: Any) -> None:
    if _lifecycle is not None:
        _lifecycle.forked()


def _close_children(**_: Any) -> None:
    from tilewatch.worker.steps import compiler

    compiler.close()
    if _lifecycle is not None and _lifecycle.identity.gpu is not None:
        from tilewatch.worker.gpu import real

        real.kept.close()


def _close_beat(**_: Any) -> None:
    processes.forbid_inspection()


signals.beat_init.connect(_close_beat)
signals.setup_logging.connect(_set_up_logging)
signals.celeryd_after_setup.connect(_set_up_worker)
signals.worker_ready.connect(_start)
signals.worker_shutting_down.connect(_drain)
signals.worker_shutdown.connect(_stop)
signals.worker_process_init.connect(_forked)
signals.worker_process_shutdown.connect(_close_children)
