"""Sends the ids of jobs to workers through Redis. Lost messages do no harm, because Postgres stores the jobs."""

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
"""The queue for host code that not every node can run, because it imports PyTorch or another package."""
JUDGE = "judge"
NOTIFY_QUEUE = "tell"
"""The queue of jobs that write to people and forges. Its workers take no other jobs, because they have the forge's
token and other jobs run the code of commits. So messages do not wait for the runs of a night either."""
OF_ONE_GPU = "@"
CONNECT_LIMIT_S = 5
RESEND_AFTER_S = 60
"""The seconds after which a queued job's message may be lost, so that `find_lost` looks for it in Redis."""

CONFIGURATION: dict[str, Any] = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    # A lease in Postgres replaces late acknowledgement, which ran a job longer than Redis' visibility timeout three
    # times at once, and noticed only after 100 s that a job's node was killed.
    "task_acks_late": False,
    # Without this a busy worker holds messages that an idle one could take. Only for Redis, new in Celery 5.7.
    "worker_disable_prefetch": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_transport": "tilewatch.worker.queue.transport:Transport",
    # Workers are controlled only by signals: anybody who can write to the broker could otherwise stop them.
    "worker_enable_remote_control": False,
    # With ack_emulation Kombu keeps copies of received messages in Redis and restores them later: a copy that somebody
    # else wrote ended each worker that restored it. We need no copies, because the job table says what is queued.
    "broker_transport_options": {"socket_connect_timeout": CONNECT_LIMIT_S, "ack_emulation": False},
    "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0.2, "interval_step": 0.5},
    "task_default_queue": JUDGE,
    "timezone": "UTC",
    "enable_utc": True,
}


class BrokerUnreachable(ExpectedError):
    """Raised if Redis cannot be used. The message is a sentence without the password."""


def gpu_queue(slug: str) -> str:
    """Returns the name of the queue for all GPUs of a model."""
    return f"gpu.{slug}"


def one_gpu_queue(slug: str, gpu_uuid: str) -> str:
    """Returns the name of the queue for one GPU."""
    return f"{gpu_queue(slug)}{OF_ONE_GPU}{gpu_uuid}"


def configuration(broker_url: str) -> dict[str, Any]:
    """Returns Celery's settings for a broker. A rediss:// URL is encrypted."""
    # Kombu would not encrypt without it. Certificates in the URL have precedence.
    encrypted = {"broker_use_ssl": {"ssl_cert_reqs": "required"}} if broker_url.startswith("rediss://") else {}
    return {**CONFIGURATION, **encrypted, "broker_url": broker_url}


def sender(broker_url: str) -> Celery:
    """Returns a Celery application that only sends."""
    return Celery("tilewatch", set_as_current=False, changes=configuration(broker_url))


def send(celery: Celery, database_url: str, queued: Sequence[UnsentJob]) -> None:
    """Sends a message for each job. The jobs must be committed first. Raises BrokerUnreachable if Redis fails."""
    if not queued:
        return
    # First, because a claim skips locked rows. The reconciler finds jobs that were marked and not sent.
    with session(database_url) as opened:
        jobs.mark_sent(opened, [job.id for job in queued])
    with _reaching(celery):
        for job in queued:
            celery.send_task(RUN, (job.id,), queue=job.queue, task_id=_message_id(job.id))


def wake_outbox(celery: Celery, database_url: str) -> None:
    """Starts the task that sends messages to people, unless there is nothing to report."""
    with session(database_url) as opened:
        if not messages.list_unreported_changes(opened):
            return
    with _reaching(celery):
        celery.send_task(NOTIFY_TASK, queue=NOTIFY_QUEUE)


def read_counters(celery: Celery, slug: str, gpu_uuid: str) -> None:
    """Starts the task that reads hardware counters on one GPU. A later heartbeat replaces a lost message."""
    with _reaching(celery):
        celery.send_task(COUNT_TASK, queue=one_gpu_queue(slug, gpu_uuid))


@contextlib.contextmanager
def _reaching(celery: Celery) -> Iterator[None]:
    """Raises BrokerUnreachable if Redis fails inside the block."""
    try:
        yield
    except OperationalError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(celery.conf.broker_url)}: {error}") from None


def find_lost(broker_url: str, queued: Iterable[UnsentJob]) -> list[UnsentJob]:
    """Returns the queued jobs whose messages are missing in Redis."""
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
    """Raises BrokerUnreachable if Redis refuses writes, for example when it is full."""
    try:
        with _client(broker_url) as client:
            client.set("tilewatch:takes", 1, px=1000)
    except redis.RedisError as error:
        raise BrokerUnreachable(f"Redis cannot be used at {address(broker_url)}: {error}") from None


def address(broker_url: str) -> str:
    """Returns host:port of a URL, without the password."""
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
    except ValueError:  # its message may repeat the password
        raise BrokerUnreachable("the broker URL cannot be read; expected redis://:password@host:port/number") from None


def _ids(raw: bytes) -> Iterator[str]:
    """Yields the id of a message's job, or nothing if the message is unreadable."""
    with contextlib.suppress(task_message.Refused):
        yield task_message.read(raw).id


def _message_id(job_id: int) -> str:
    return f"job-{job_id}"
