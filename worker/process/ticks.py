"""Keeps periodic tasks running, even if the clocks of the scheduler and the workers are wrong."""

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
"""A task is not run again within this many seconds after its end. After a day's pause, 3,000 messages wait in a queue.
A worker skips hundreds of them per second."""


class Scheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """Celery's scheduler, which pauses tasks for at most one period after the clock is set back."""

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
    """Wraps a periodic task so that it is skipped if it has just run in this process."""
    # Messages have no expiry time: a worker whose clock was ten minutes ahead silently dropped all of them (2026-11).
    ended_at: float | None = None

    @functools.wraps(task)
    def run() -> None:
        nonlocal ended_at
        if ended_at is None or time.monotonic() - ended_at >= PAUSE_S:
            task()
            ended_at = time.monotonic()

    return run
