"""The clock of periodic tasks: beat, whose own clock may be set back, and workers, which may have another one.

A message of beat says no time at which it is too old: a worker whose clock was ten minutes ahead dropped each of them
without a word (2026-11). Instead, a worker that finds the ticks of a long pause does the first of them.
"""

import datetime as dt
import functools
import time
from collections.abc import Callable
from typing import Any

import structlog
from celery.beat import PersistentScheduler

log = structlog.get_logger()

SET_BACK = dt.timedelta(seconds=1)

PAUSE_S = 1.0
"""The ticks of a day wait 3,000 in a queue, and a worker takes hundreds a second that have nothing to do."""


class Scheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """Celery's own, but that a clock that was set back stops it for one period at most: it waited until the clock was
    again where it had been."""

    def tick(self, *arguments: Any, **named: Any) -> float:
        now: dt.datetime = self.app.now()
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at > now + SET_BACK]
        if ahead:
            log.warning("the clock was set back", tasks=sorted(entry.name for entry in ahead))
            for entry in ahead:
                entry.last_run_at = now
            self._heap = None
        delay_s: float = super().tick(*arguments, **named)
        return delay_s


def skip_repeated(task: Callable[[], None]) -> Callable[[], None]:
    """Makes a periodic task do nothing where it ended less than PAUSE_S ago in this process."""
    ended_at: float | None = None

    @functools.wraps(task)
    def run() -> None:
        nonlocal ended_at
        if ended_at is None or time.monotonic() - ended_at >= PAUSE_S:
            task()
            ended_at = time.monotonic()

    return run
