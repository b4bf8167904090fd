"""Kombu's Redis transport, but for two things: a message that is none of ours is dropped, counted and logged; a Redis
that refuses commands is one that cannot be reached.

Kombu decodes a message inside the worker's event loop, and an exception there ends the worker. So message.py reads it
before, and what goes on to kombu was made anew by it.
"""

from queue import Empty
from typing import Any

import structlog
from kombu.transport import redis
from redis.exceptions import ResponseError

from tilewatch.worker.queue import task_message
from tilewatch.worker.queue.task_message import Refused

log = structlog.get_logger()


class GuardedChannel(redis.Channel):
    def _brpop_read(self, **options: Any) -> bool:
        """Kombu's own method, but for what happens to the item."""
        try:
            try:
                popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if not popped:
                raise Empty
            key, item = popped
            queue = key.decode().rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            try:
                task = task_message.read(item if isinstance(item, bytes) else str(item).encode())
            except Refused as reason:
                refuse(queue, reason)
                return True
            self.connection._deliver(task_message.to_celery(task, queue), queue)
            return True
        finally:
            self._in_poll = None  # type: ignore[assignment]  # kombu is half typed
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    Channel = GuardedChannel
    # A full disk makes Valkey refuse every write, BRPOP too (MISCONF), and so does a full memory (OOM): that passes.
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def establish_connection(self) -> Any:
        """Connects only to a Redis that takes writes: Kombu waits longer after each attempt that fails here, and not
        at all between two connections that fail at their first read."""
        opened = super().establish_connection()  # type: ignore[no-untyped-call]  # kombu is half typed
        channel = self._avail_channels[-1]
        try:
            channel.client.lpushx("tilewatch.nothing", "")  # changes nothing: there is no such list
        except self.connection_errors:
            self._avail_channels.remove(channel)
            channel.close()
            raise
        return opened


def refuse(queue: str, reason: Exception) -> None:
    from tilewatch.worker import metrics  # after the worker has chosen where its metrics lie

    metrics.MESSAGES_REFUSED.inc()
    log.warning("message refused", queue=queue, reason=str(reason))
