"""Decides when a nightly is missing or late: one definition for the alarms of the workers and for the dashboard."""

import datetime as dt
from typing import Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tilewatch.errors import ExpectedError

SUBMIT_PATIENCE = dt.timedelta(minutes=5)
"""The clock's own entry gets this long to submit a nightly."""

MISSING_AFTER = dt.timedelta(minutes=30)
"""A nightly is missing from then on: the reconciler has submitted one that beat left out, if it can be submitted at
all."""

ENDED_WELL = ("measured", "static facts only")
"""States of a submission in which a nightly is over and nothing failed."""


class BadSettings(ExpectedError, ValueError):
    """A TILEWATCH_ variable with a value that makes no sense; the message is a sentence for a person."""


class NightlyTimes(BaseSettings):
    """The settings of nightlies, from TILEWATCH_NIGHTLY_AT and TILEWATCH_NIGHTLY_LIMIT_H."""

    model_config = SettingsConfigDict(
        env_prefix="TILEWATCH_", env_ignore_empty=True, frozen=True, validate_default=True
    )

    nightly_at: dt.time = dt.time(3, 0)  # UTC
    nightly_limit_h: float = Field(default=8.0, gt=0, le=24 * 366)  # a nightly that is not over by then is late

    @classmethod
    def load(cls) -> Self:
        """Reads the environment. Raises BadSettings."""
        try:
            return cls()
        except ValidationError as error:
            raise BadSettings("; ".join(_sentences(error))) from None


def due_night(now: dt.datetime, times: NightlyTimes, patience: dt.timedelta = SUBMIT_PATIENCE) -> dt.date:
    """Returns the newest night whose nightly should have been submitted by now."""
    then = now - patience
    return then.date() if then.time() >= times.nightly_at else then.date() - dt.timedelta(days=1)


def missing_night(last: dt.date | None, now: dt.datetime, times: NightlyTimes) -> dt.date | None:
    """Returns the night that should have its nightly by now and lacks it; None if nothing is missing. `last` is the
    newest night that was submitted. Before the first nightly nothing is missing."""
    due = due_night(now, times, MISSING_AFTER)
    return due if last is not None and last < due else None


def is_late(state: str, requested_at: dt.datetime, now: dt.datetime, times: NightlyTimes) -> bool:
    """Says whether a nightly of this state of its submission should be over by now. A failed one is late too."""
    return state not in ENDED_WELL and now - requested_at > dt.timedelta(hours=times.nightly_limit_h)


def _sentences(error: ValidationError) -> list[str]:
    """Writes one clause for each wrong variable. The value of a URL or a token is never repeated, since it may be a
    secret."""
    clauses = []
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":  # a consequence of another field's error
            continue
        name = str(problem["loc"][0])
        value = "" if name.endswith(("_url", "_token", "_secret")) else f"={problem['input']}"
        clauses.append(f"TILEWATCH_{name.upper()}{value}: {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    return clauses
