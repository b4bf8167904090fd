"""Submits nightlies at their hour and after a missed one, and prunes old samples.

A night has a nightly of each watched repository. One that was added is fetched first; where that fails, the commit
that is there is measured and an alarm says so. That of TILEWATCH_REPOSITORY is measured at its HEAD: whoever keeps that
clone up to date decides what a night measures. Two beats submit one nightly, since a submission's key has the night and
the commit. All times are UTC, so no clock change repeats or skips a night.
"""

import datetime as dt

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import repositories
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.errors import ExpectedError
from tilewatch.nightlies import due_night
from tilewatch.worker.git import watched
from tilewatch.worker.git.clones import FetchFailed
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.pinned_toolchain import ask_comparison
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.submitting.submit_requests import AWAY


def submit(settings: Settings) -> list[str]:
    """Submits the nightly of every watched repository; returns a sentence for each. What hinders one, such as a
    library that does not load, hinders no other."""
    names = watched.list_names(settings.connection().database_url, settings)
    return [_submit_one(settings, name, None) for name in names]


def catch_up(settings: Settings, now: dt.datetime) -> list[str]:
    """Submits the last night's nightly of each repository whose hour passed without it; returns a sentence for each.

    Nothing is missed before the first nightly. Of several missed nights only the last is submitted: the commit under
    test would be the same.
    """
    night = due_night(now, settings)
    names = watched.list_names(settings.connection().database_url, settings)
    with session(settings.connection().database_url) as opened:
        last = {name: steps.find_last_night(opened, name) for name in names}
    return [
        _submit_one(settings, name, night) for name, before in last.items() if before is not None and before < night
    ]


def _submit_one(settings: Settings, name: str, night: dt.date | None) -> str:
    """Submits a nightly, and stores why its repository cannot be fetched."""
    failure: str | None = None
    try:
        submitted = submit_nightly(settings, repository=name, night=night)
        sentence, failure = submitted.sentence, submitted.fetch_failure
        if submitted.created and (pinned := ask_comparison(settings, name)) is not None:
            sentence += f"; {pinned}"
    except AWAY:
        raise
    except ExpectedError as error:
        failure = str(error) if isinstance(error, FetchFailed) else None
        sentence = f"no nightly was submitted for {name}: {error}"
    if failure is not None:
        with session(settings.connection().database_url) as opened:
            repositories.write_fetch_failure(opened, name, failure)
    return sentence


BATCH = 10
"""Sweeps in one transaction: some 5,000 trials."""


def prune(database_url: str, days: int, now: dt.datetime) -> int:
    """Reduces the samples of old trials that lost to their median; returns how many trials."""
    before = now - dt.timedelta(days=days)
    rolled_up = 0
    while True:
        with session(database_url) as opened:
            changed = fact_writes.roll_up_trials(opened, before, BATCH)
        if changed is None:
            return rolled_up
        rolled_up += changed
