"""Finds missing and late nightlies (the sweeps of each night), for alarms and the dashboard."""

import datetime as dt
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tilewatch.errors import ExpectedError

SUBMIT_PATIENCE = dt.timedelta(minutes=5)
"""The time that Celery beat has to submit a nightly on schedule. Only later do other processes submit it."""

MISSING_AFTER = dt.timedelta(minutes=30)
"""The time after which a nightly counts as missing. By then the reconciler has submitted it if that is possible."""

ENDED_WELL = ("measured", "static facts only")
"""The states of a submission whose nightly ended without a failure."""


class BadSettings(ExpectedError, ValueError):
    """Raised if a TILEWATCH_ variable has a bad value. The message is a sentence."""


def _require_hour(at: object) -> object:
    """Returns an hour unchanged. Raises ValueError for a number, which pydantic would read as seconds."""
    if not isinstance(at, dt.time) and ":" not in str(at):
        raise ValueError("expected an hour such as 03:00")
    return at


Hour = Annotated[dt.time, BeforeValidator(_require_hour)]


def _to_utc(at: dt.time) -> dt.time:
    """Returns a time of day in UTC without an offset, such as 03:00 for 03:00Z or 05:00+02:00."""
    return dt.datetime.combine(dt.date(2000, 1, 2), at, at.tzinfo or dt.UTC).astimezone(dt.UTC).time()


class NightlyTimes(BaseSettings):
    """The hour at which nightlies start, and their time limit."""

    model_config = SettingsConfigDict(
        env_prefix="TILEWATCH_", env_ignore_empty=True, frozen=True, validate_default=True
    )

    nightly_at: Annotated[Hour, AfterValidator(_to_utc)] = dt.time(3, 0)  # UTC
    nightly_limit_h: float = Field(default=8.0, gt=0, le=24 * 366)  # hours after which a running nightly is late

    @classmethod
    def load(cls) -> Self:
        """Returns the settings from the environment. Raises BadSettings if a variable has a bad value."""
        try:
            return cls()
        except ValidationError as error:
            raise BadSettings("; ".join(_sentences(error))) from None


def due_night(now: dt.datetime, times: NightlyTimes, patience: dt.timedelta = SUBMIT_PATIENCE) -> dt.date:
    """Returns the date of the newest nightly whose start time was at least `patience` ago."""
    then = now - patience
    return then.date() if then.time() >= times.nightly_at else then.date() - dt.timedelta(days=1)


def missing_night(last: dt.date | None, now: dt.datetime, times: NightlyTimes) -> dt.date | None:
    """Returns the date of a missing nightly, or None. `last` is the date of the last submitted nightly."""
    due = due_night(now, times, MISSING_AFTER)
    return due if last is not None and last < due else None


def is_late(state: str, requested_at: dt.datetime, now: dt.datetime, times: NightlyTimes) -> bool:
    """Returns whether a nightly has exceeded its time limit without ending successfully."""
    return state not in ENDED_WELL and now - requested_at > dt.timedelta(hours=times.nightly_limit_h)


def _sentences(error: ValidationError) -> list[str]:
    """Returns an error message for each wrong variable, without the values of URLs, tokens and secrets."""
    clauses = []
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":  # a consequence of another field's error
            continue
        name = str(problem["loc"][0])
        value = "" if name.endswith(("_url", "_token", "_secret")) else f"={problem['input']}"
        reason = problem["msg"].removeprefix("Value error, ")
        clauses.append(f"TILEWATCH_{name.upper()}{value}: {reason[:1].lower()}{reason[1:]}")
    return clauses
