"""Celery's road to Redis, with a guard at its door: what is no ring of ours is dropped there, counted and logged once.

Kombu reads a message right inside the worker's event loop, and an exception there ends the worker. The guard is in
front of that. What it lets through was written anew by message.py. Only the reading of queues differs from kombu's.
"""

from queue import Empty
from typing import Any

import structlog
from kombu.transport import redis

from tilewatch.worker.queue import message
from tilewatch.worker.queue.message import Refused

log = structlog.get_logger()


class Channel(redis.Channel):
    def _brpop_read(self, **options: Any) -> bool:
        """Kombu's own, but for what happens to the item."""
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
                ring = message.read(item if isinstance(item, bytes) else str(item).encode())
            except Refused as reason:
                refuse(queue, reason)
                return True
            self.connection._deliver(message.written(ring, queue), queue)
            return True
        finally:
            self._in_poll = None  # type: ignore[assignment]  # kombu is half typed
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    Channel = Channel


def refuse(queue: str, reason: Exception) -> None:
    from tilewatch.worker import metrics  # after the worker has chosen where its metrics lie

    metrics.MESSAGES_REFUSED.inc()
    log.warning("message refused", queue=queue, reason=str(reason))
