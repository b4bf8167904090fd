"""When the night's work is submitted, and what it is: the watched repository's HEAD as it is on the judge's machine.

Nothing is fetched: whoever keeps that clone up to date decides what a night tests. Two beats submit one nightly, since
a submission's key holds the night and the commit.
"""

import datetime as dt

from celery.schedules import crontab

from worker.settings import Settings
from worker.submit import submit_nightly


def schedule(at: dt.time) -> crontab:
    return crontab(hour=at.hour, minute=at.minute)


def submit(settings: Settings) -> str:
    return submit_nightly(settings).sentence
