"""Decides from which queues a worker takes jobs. A queue stays closed while any reason to close it lasts."""

import threading
from collections.abc import Callable, Collection


class Intake:
    """Closes and reopens a worker's queues by calling `take(queue, is_open)`. It is thread-safe."""

    def __init__(self, queues: Collection[str], take: Callable[[str, bool], None]) -> None:
        self._queues, self._take = tuple(queues), take
        self._closed_by: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def close(self, reason: str, queues: Collection[str] | None = None) -> None:
        """Closes these queues, or all queues for None, until `reopen` gets the same reason."""
        self._change(reason, frozenset(self._queues if queues is None else queues))

    def reopen(self, reason: str) -> None:
        self._change(reason, frozenset())

    def _change(self, reason: str, closed: frozenset[str]) -> None:
        with self._lock:
            before = frozenset().union(*self._closed_by.values())
            self._closed_by[reason] = closed
            after = frozenset().union(*self._closed_by.values())
            for queue in self._queues:
                if (queue in before) != (queue in after):
                    self._take(queue, queue not in after)
