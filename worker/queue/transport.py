"""Changes Kombu's Redis transport so that it drops messages from other senders. Such messages could end a worker."""

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
        """Reads the next message, and delivers it or drops it if it was refused."""
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
            # Read before Kombu decodes it, because an exception in the event loop ends the worker.
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
    # Valkey refuses every write, BRPOP too, if its disk is full (MISCONF) or its memory (OOM): trouble that passes.
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def establish_connection(self) -> Any:
        """Connects to Redis. Fails if Redis refuses writes."""
        # Fails here, because Kombu waits after a failed attempt to connect, but not after a failed first read.
        opened = super().establish_connection()  # type: ignore[no-untyped-call]  # kombu is half typed
        channel = self._avail_channels[-1]
        try:
            channel.client.lpushx("tilewatch.nothing", "")  # a write that changes nothing: there is no such list
        except self.connection_errors:
            self._avail_channels.remove(channel)
            channel.close()
            raise
        return opened


def refuse(queue: str, reason: Exception) -> None:
    from tilewatch.worker import metrics  # imported once the worker has set the folder of its metrics

    metrics.MESSAGES_REFUSED.inc()
    log.warning("message refused", queue=queue, reason=str(reason))
