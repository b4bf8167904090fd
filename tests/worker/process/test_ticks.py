"""Periodic tasks where a clock is set back, where two clocks differ, and after a pause."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import schedule

from tilewatch.worker.process import ticks
from tilewatch.worker.settings import Settings


class Sent(ticks.Scheduler):  # type: ignore[misc]  # Celery has no types
    """The scheduler, but that what it sends is kept."""

    sent: list[str]
    producer = None

    def apply_async(self, entry: Any, *_: Any, **__: Any) -> None:
        self.sent.append(entry.name)


def make_scheduler(folder: Path) -> Sent:
    app = Celery("test", set_as_current=False)
    app.conf.timezone = "UTC"
    app.conf.beat_schedule = {
        name: {"task": f"worker.{name}", "schedule": schedule(period_s, app=app)}
        for name, period_s in (("often", 30.0), ("seldom", 60.0))
    }
    scheduler = Sent(app, schedule_filename=str(folder / "beat"))
    scheduler.sent = []
    for entry in scheduler.schedule.values():
        entry.schedule.app = app  # what was read from the file asks the app of whichever test ran before
    return scheduler


def test_a_clock_that_is_set_back_an_hour_stops_no_periodic_task(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    now = [dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)]
    scheduler.app.now = lambda: now[0]
    for entry in scheduler.schedule.values():
        entry.last_run_at = now[0]
        entry.schedule.nowfun = lambda: now[0]
    scheduler._when = lambda _, delay_s, **__: now[0].timestamp() + delay_s
    scheduler.tick()

    def run(seconds: int) -> None:
        for _ in range(seconds):
            now[0] += dt.timedelta(seconds=1)
            while scheduler.tick() == 0:
                pass

    run(60)
    assert sorted(scheduler.sent) == ["often", "often", "seldom"]
    now[0] -= dt.timedelta(hours=1)
    scheduler.sent.clear()
    run(61)
    assert sorted(scheduler.sent) == ["often", "often", "seldom"]
    for entry in scheduler.schedule.values():
        entry.schedule.nowfun = None  # it is written to disk
    scheduler.close()


def test_a_task_that_just_ended_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the ticks of a night in which the worker was away."""
    clock, done = [100.0], []
    monkeypatch.setattr(ticks.time, "monotonic", lambda: clock[0])
    task = ticks.skip_repeated(lambda: done.append(clock[0]))
    for _ in range(3):
        task()
    clock[0] += ticks.PAUSE_S
    task()
    assert done == [100.0, 100.0 + ticks.PAUSE_S]


def test_beat_says_no_time_at_which_a_tick_is_too_old(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is ahead would drop it."""
    from tests.worker.fixtures.celery_process import environment

    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)
    from tilewatch.worker import app

    for name, entry in app._configuration()["beat_schedule"].items():
        assert "expires" not in entry.get("options", {}), name
