"""Submits nightlies at their hour and after a missed one, and prunes old samples.

A nightly measures the HEAD of the watched repository as it is on the judge's machine. Nothing is fetched: whoever keeps
that clone up to date decides what a night measures. Two beats submit one nightly, since a submission's key has the
night and the commit. All times are UTC, so no clock change repeats or skips a night.
"""

import datetime as dt

from celery.schedules import crontab

from tilewatch.db import record
from tilewatch.db.session import session
from tilewatch.db.step_queries import steps
from tilewatch.nightlies import due_night
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.submit import submit_nightly


def schedule(at: dt.time) -> crontab:
    return crontab(hour=at.hour, minute=at.minute)


def submit(settings: Settings) -> str:
    return submit_nightly(settings).sentence


def catch_up(settings: Settings, now: dt.datetime) -> str | None:
    """Submits the last night's nightly when its hour passed without it. Returns a sentence, None when none was missed.

    Nothing is missed before the first nightly. Of several missed nights only the last is submitted: the commit under
    test would be the same.
    """
    night = due_night(now, settings)
    with session(settings.connection().database_url) as opened:
        last = steps.find_last_night(opened)
    if last is None or last >= night:
        return None
    return submit_nightly(settings, night=night).sentence


BATCH = 5_000
"""Trials in one transaction."""


def prune(database_url: str, days: int, now: dt.datetime) -> int:
    """Reduces the samples of old trials that lost to their median; returns how many trials."""
    before = now - dt.timedelta(days=days)
    rolled_up = 0
    while True:
        with session(database_url) as opened:
            changed = record.roll_up_trials(opened, before, BATCH)
        rolled_up += changed
        if not changed:
            return rolled_up
