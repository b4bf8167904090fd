"""Submits nightlies at their hour, or later if it was missed, and deletes old samples. All times are UTC."""

import datetime as dt
from dataclasses import dataclass

import structlog

from tilewatch import errors
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import alarms, repositories
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.nightlies import due_night
from tilewatch.text import without_controls
from tilewatch.worker.git import watched
from tilewatch.worker.git.clones import FetchFailed
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.pinned_toolchain import ask_comparison
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.submitting.submit_requests import AWAY

log = structlog.get_logger()


def submit(settings: Settings, night: dt.date | None = None) -> list[str]:
    """Submits the nightly of every watched repository. Returns a sentence for each success or failure."""
    night = night or dt.datetime.now(dt.UTC).date()
    names = watched.list_names(settings.connection().database_url, settings)
    return [_submit_one(settings, name, night) for name in names]


def catch_up(settings: Settings, now: dt.datetime) -> list[str]:
    """Submits the nightlies that were missed last night, and returns a sentence for each."""
    night = due_night(now, settings)
    names = watched.list_names(settings.connection().database_url, settings)
    with session(settings.connection().database_url) as opened:
        last = {name: steps.find_last_night(opened, name) for name in names}
    return [
        _submit_one(settings, name, night) for name, before in last.items() if before is not None and before < night
    ]


def _submit_one(settings: Settings, name: str, night: dt.date) -> str:
    """Submits a nightly of a repository and returns a sentence. A failure opens an alarm."""
    outcome = _try_to_submit(settings, name, night)
    with session(settings.connection().database_url) as opened:
        if outcome.fetch_failure is not None:
            repositories.write_fetch_failure(opened, name, outcome.fetch_failure)
        if outcome.is_submitted:
            alarms.close_failed_nightly(opened, name)
        elif outcome.fetch_failure is None:  # a failed fetch has an alarm of its own
            alarms.open_failure(opened, alarms.FAILED_NIGHTLY, name, outcome.sentence)
    return outcome.sentence


@dataclass(frozen=True)
class _Outcome:
    sentence: str
    is_submitted: bool
    fetch_failure: str | None


def _try_to_submit(settings: Settings, name: str, night: dt.date) -> _Outcome:
    try:
        submitted = submit_nightly(settings, repository=name, night=night)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the other repositories shall get their nightlies
        reason = _describe(error, f"no nightly could be submitted for {name}")
        failure = reason if isinstance(error, FetchFailed) else None
        return _Outcome(f"no nightly was submitted for {name}: {reason}", False, failure)
    pinned = _ask_comparison(settings, name)  # also after a crash between the two: it is asked once
    sentence = submitted.sentence if pinned is None else f"{submitted.sentence}; {pinned}"
    return _Outcome(sentence, True, submitted.fetch_failure)


def _ask_comparison(settings: Settings, name: str) -> str | None:
    try:
        return ask_comparison(settings, name)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the nightly is submitted, and the other repositories wait for theirs
        return f"the compilers that it pins could not be read: {_describe(error, f'the pins of {name}')}"


def _describe(error: Exception, what: str) -> str:
    """Returns an error as a sentence. Logs the traceback of an unexpected error."""
    expected = errors.sentence(error)
    if expected is None:
        log.error(what, exc_info=error)
    return without_controls(" ".join((expected or f"{type(error).__name__}: {error}").split()))


BATCH = 10
"""The number of sweeps whose samples are deleted in one transaction, with about 5,000 trials."""


def prune(database_url: str, days: int, now: dt.datetime) -> int:
    """Deletes the samples of losing trials older than `days`. Returns how many trials lost their samples."""
    before = now - dt.timedelta(days=days)
    rolled_up = 0
    while True:
        with session(database_url) as opened:
            changed = fact_writes.roll_up_trials(opened, before, BATCH)
        if changed is None:
            return rolled_up
        rolled_up += changed
