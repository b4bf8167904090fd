"""Sends the ids of jobs to workers: the Celery settings that both ends share, sending, and what waits in Redis.

Redis may lose every message: the job table says what is queued, and reconcile.py sends again. So messages are
acknowledged on receipt, there is no result backend, and no job's state is read here.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from tilewatch.db.lifecycle import jobs, messages
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.session import session
from tilewatch.errors import ExpectedError
from tilewatch.worker.queue import task_message
from tilewatch.worker.queue.task_message import RUN

NOTIFY_TASK = "worker.tell"
COUNT_TASK = "worker.read_counters"
COMPILE = "compile"
TRACE_QUEUE = "record"
"""The queue of host code that only some nodes can run: those that have PyTorch, or whatever it imports."""
JUDGE = "judge"
NOTIFY_QUEUE = "tell"
"""What talks to people and to the forge. Its worker takes from no other queue: it has the forge's token, and the others
run the code of commits. So a message never waits behind a night of runs to judge either."""
OF_ONE_GPU = "@"
CONNECT_LIMIT_S = 5
RESEND_AFTER_S = 60
"""A message this old whose job is still queued is either behind others or lost; Redis itself is asked which."""

CONFIGURATION: dict[str, Any] = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    # A lease in Postgres replaces late acknowledgement: with it, a job longer than Redis' visibility timeout ran three
    # times at once, and a node killed with its job was found only after 100 s.
    "task_acks_late": False,
    # Otherwise a busy worker holds messages that an idle one could take. Redis only, new in Celery 5.7.
    "worker_disable_prefetch": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_transport": "tilewatch.worker.queue.transport:Transport",
    # Workers are controlled by signals alone: through the broker, whoever can write there could stop them.
    "worker_enable_remote_control": False,
    # Without ack_emulation Kombu keeps no copy of a message under way in Redis: one that somebody else wrote there
    # ended each worker that restored it, after every start. Ours need no copy: the job table says what is queued.
    "broker_transport_options": {"socket_connect_timeout": CONNECT_LIMIT_S, "ack_emulation": False},
    "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0.2, "interval_step": 0.5},
    "task_default_queue": JUDGE,
    "timezone": "UTC",
    "enable_utc": True,
}


class BrokerUnreachable(ExpectedError):
    """Redis cannot be used; the message is a sentence with its address and without its password."""


def gpu_queue(slug: str) -> str:
    """Returns the queue of work that any GPU of a model may do."""
    return f"gpu.{slug}"


def one_gpu_queue(slug: str, gpu_uuid: str) -> str:
    """Returns the queue of work that one GPU alone may do: a replay that compares two nodes is of no use on a third."""
    return f"{gpu_queue(slug)}{OF_ONE_GPU}{gpu_uuid}"


def configuration(broker_url: str) -> dict[str, Any]:
    """Celery's settings for a broker.

    Kombu speaks plain text to a rediss:// URL without `broker_use_ssl`; what the URL says of certificates
    (ssl_ca_certs, ssl_certfile, ssl_keyfile) goes before this.
    """
    encrypted = {"broker_use_ssl": {"ssl_cert_reqs": "required"}} if broker_url.startswith("rediss://") else {}
    return {**CONFIGURATION, **encrypted, "broker_url": broker_url}


def sender(broker_url: str) -> Celery:
    """Returns a Celery application that only sends."""
    return Celery("tilewatch", set_as_current=False, changes=configuration(broker_url))


def send(celery: Celery, database_url: str, queued: Sequence[UnsentJob]) -> None:
    """Sends one message per job. Call it after the transaction that queued them is committed: a worker may look at
    once.

    Jobs are marked before they are sent: a claim passes over a row that is being changed, so a worker that came while
    its job was being marked found nothing, and the job waited for the reconciler, which also finds what was marked and
    not sent.
    """
    if not queued:
        return
    with session(database_url) as opened:
        jobs.mark_sent(opened, [job.id for job in queued])
    try:
        for job in queued:
            celery.send_task(RUN, (job.id,), queue=job.queue, task_id=_message_id(job.id))
    except OperationalError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(celery.conf.broker_url)}: {error}") from None


def wake_outbox(celery: Celery, database_url: str) -> None:
    """Sends the task that sends messages to people, if there are new ones. Beat sends it too: a lost one is only
    late."""
    with session(database_url) as opened:
        if not messages.list_unreported_changes(opened):
            return
    try:
        celery.send_task(NOTIFY_TASK, queue=NOTIFY_QUEUE)
    except OperationalError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(celery.conf.broker_url)}: {error}") from None


def read_counters(celery: Celery, slug: str, gpu_uuid: str) -> None:
    """Sends the task that reads counters on one GPU. It is sent again with a later heartbeat: a lost one is only
    late."""
    try:
        celery.send_task(COUNT_TASK, queue=one_gpu_queue(slug, gpu_uuid))
    except OperationalError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(celery.conf.broker_url)}: {error}") from None


def find_lost(broker_url: str, queued: Iterable[UnsentJob]) -> list[UnsentJob]:
    """Finds the queued jobs that have no message in Redis any more. Looking saves a queue without a worker from filling
    up with copies."""
    messages: dict[str, set[str]] = {}
    missing = []
    with _client(broker_url) as client:
        for job in queued:
            if job.queue not in messages:
                messages[job.queue] = {each for raw in client.lrange(job.queue, 0, -1) for each in _ids(raw)}
            if _message_id(job.id) not in messages[job.queue]:
                missing.append(job)
    return missing


def require_broker(broker_url: str) -> None:
    """Raises BrokerUnreachable unless Redis answers."""
    try:
        with _client(broker_url) as client:
            client.ping()
    except redis.RedisError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(broker_url)}: {error}") from None


def address(broker_url: str) -> str:
    """Returns the host:port of a URL, which may be shown."""
    try:
        parts = urlsplit(broker_url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:
        return "an address that cannot be read"


def _client(broker_url: str) -> "redis.Redis":
    if not broker_url.startswith(("redis://", "rediss://")):
        raise BrokerUnreachable("the broker URL cannot be read; expected redis://:password@host:port/number")
    try:
        return redis.Redis.from_url(broker_url, socket_connect_timeout=CONNECT_LIMIT_S, socket_timeout=CONNECT_LIMIT_S)
    except ValueError:  # its message repeats pieces of the URL, so maybe of the password
        raise BrokerUnreachable("the broker URL cannot be read; expected redis://:password@host:port/number") from None


def _ids(raw: bytes) -> Iterator[str]:
    """Yields the id of a message; nothing for one that cannot be read, which the next worker of the queue drops."""
    with contextlib.suppress(task_message.Refused):
        yield task_message.read(raw).id


def _message_id(job_id: int) -> str:
    return f"job-{job_id}"
