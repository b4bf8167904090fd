"""Reads notify.toml and decides who gets a message and when. Addresses are secret, so errors do not show them."""

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tilewatch.errors import ExpectedError
from tilewatch.given_files import MOST_TOML_BYTES, BadFile, parse_toml, read_given_text
from tilewatch.nightlies import Hour
from tilewatch.text import shorten

LOG = "log"
"""The name of the channel that always exists: the log of the process that sends."""

DIGEST_PATIENCE = dt.timedelta(hours=6)
"""The longest delay of a digest. After that it is skipped, because the next digest lists what is still open."""

LONGEST_MESSAGE = 1_000  # about a file: one with 25,000 mistakes was answered with 1.2 MB (2026-11-28)

Topic = Literal["regression", "improvement", "alarm", "check"]


class BadNotifySettings(ExpectedError, ValueError):
    """Raised if notify.toml is wrong. The message is a sentence without addresses."""


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{name!r} is not a time zone; expected one such as Europe/Berlin") from None
    return name


def _without_offset(at: dt.time) -> dt.time:
    if at.tzinfo is not None:
        raise ValueError("expected an hour without an offset, such as 03:00; `zone` names the time zone of all hours")
    return at


LocalHour = Annotated[Hour, AfterValidator(_without_offset)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Channel(_Strict):
    """A channel for messages. A field `*_from` names an environment variable with the secret address."""

    apprise: str | None = Field(default=None, repr=False)
    apprise_from: str | None = None
    webhook: str | None = Field(default=None, repr=False)
    webhook_from: str | None = None
    forge: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")
    api: str = Field(default="https://api.github.com", pattern=r"^https?://")
    quiet: bool = True  # whether messages wait during quiet hours; those to a forge never do

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        given = [self.apprise, self.apprise_from, self.webhook, self.webhook_from, self.forge]
        if sum(address is not None for address in given) != 1:
            raise ValueError("name exactly one of apprise, apprise_from, webhook, webhook_from and forge")
        return self


class Route(_Strict):
    """A rule that sends matching messages to channels. Patterns may contain * and ?."""

    kernel: str = "*"
    gpu: str = "*"
    about: tuple[Topic, ...] = ("regression", "alarm", "check")  # messages about checks only go to forges
    to: tuple[str, ...] = Field(min_length=1)
    owner: str | None = None


class Quiet(_Strict):
    """The quiet hours of a day. If `end` is before `start`, they last past midnight."""

    start: LocalHour = Field(alias="from")
    end: LocalHour = Field(alias="to")


class Digest(_Strict):
    at: LocalHour
    to: tuple[str, ...] = Field(min_length=1)


class PullRequestPlace(_Strict):
    """The project on a forge that gets pull requests. `api` is None for github.com and gitlab.com."""

    forge: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)+$")
    kind: Literal["github", "gitlab"] = "github"
    api: str | None = Field(default=None, pattern=r"^https?://")


class NotifySettings(_Strict):
    """The content of notify.toml. `pull_requests` names a project on a forge for each repository."""

    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    channels: dict[str, Channel] = Field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    quiet: Quiet | None = None
    digest: Digest | None = None
    pull_requests: dict[str, PullRequestPlace] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_channels(self) -> Self:
        wanted = [name for route in self.routes for name in route.to] + list(self.digest.to if self.digest else ())
        for name in wanted:
            if name != LOG and name not in self.channels:
                known = ", ".join(sorted([*self.channels, LOG]))
                raise ValueError(f"there is no channel {name!r}; known: {known}")
        return self


def load(file: Path | None, environment: Mapping[str, str] = os.environ) -> NotifySettings:
    """Returns the settings in a file, or the defaults for None. Raises BadNotifySettings if the file is wrong."""
    if file is None:
        return NotifySettings()
    try:
        return _read(file.name, parse_toml(read_given_text(file, MOST_TOML_BYTES)), environment)
    except BadFile as error:
        raise BadNotifySettings(f"the notification settings {file} cannot be used: {error}") from None


def recipients(settings: NotifySettings, topic: Topic, kernel: str | None, gpus: Sequence[str]) -> tuple[str, ...]:
    """Returns the channels of all matching routes, each once, in the order of the routes."""
    if not settings.routes:
        return (LOG,) if topic != "improvement" else ()
    matching = [route.to for route in settings.routes if topic in route.about and _matches(route, kernel, gpus)]
    return tuple(dict.fromkeys(name for names in matching for name in names))


def find_owner(settings: NotifySettings, kernel: str | None, gpus: Sequence[str]) -> str | None:
    """Returns the owner that the first matching route names; None if no route names an owner."""
    return next((route.owner for route in settings.routes if route.owner and _matches(route, kernel, gpus)), None)


def quiet_until(settings: NotifySettings, channel: str, now: dt.datetime) -> dt.datetime | None:
    """Returns the end of a channel's quiet hours; None if a message may be sent now."""
    hours, target = settings.quiet, settings.channels.get(channel)
    if hours is None or target is None or not target.quiet or target.forge:
        return None
    zone = ZoneInfo(settings.zone)
    here = now.astimezone(zone)
    for day in (here.date() - dt.timedelta(days=1), here.date()):
        over_midnight = dt.timedelta(days=1 if hours.end <= hours.start else 0)
        start = dt.datetime.combine(day, hours.start, zone)
        end = dt.datetime.combine(day + over_midnight, hours.end, zone)
        if start <= here < end:
            return end.astimezone(dt.UTC)
    return None


def digest_due(settings: NotifySettings, now: dt.datetime) -> dt.date | None:
    """Returns the day whose digest is due; None if no digest is due."""
    if settings.digest is None:
        return None
    zone = ZoneInfo(settings.zone)
    today = now.astimezone(zone).date()
    late = {day: now - dt.datetime.combine(day, settings.digest.at, zone) for day in (today, today - dt.timedelta(1))}
    return next((day for day in late if dt.timedelta(0) <= late[day] < DIGEST_PATIENCE), None)


def _matches(route: Route, kernel: str | None, gpus: Sequence[str]) -> bool:
    """Returns whether a route matches. A message without a kernel or GPU matches only the pattern `*`."""
    fits_kernel = route.kernel == "*" if kernel is None else fnmatchcase(kernel, route.kernel)
    return fits_kernel and (any(fnmatchcase(gpu, route.gpu) for gpu in gpus) if gpus else route.gpu == "*")


def _read(name: str, written: dict[str, Any], environment: Mapping[str, str]) -> NotifySettings:
    channels = written.get("channels")
    for fields in channels.values() if isinstance(channels, dict) else ():
        if isinstance(fields, dict):
            _fill_in_address(fields, environment)
    try:
        return NotifySettings.model_validate(written)
    except ValidationError as error:
        raise BadNotifySettings(shorten("; ".join(_sentences(name, error)), LONGEST_MESSAGE)) from None


def _fill_in_address(fields: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Replaces the name of an environment variable by the address in it."""
    for kind in ("apprise", "webhook"):
        variable = fields.get(f"{kind}_from")
        if isinstance(variable, str) and kind not in fields and environment.get(variable):
            fields[kind] = environment[variable]
            del fields[f"{kind}_from"]


def _sentences(name: str, error: ValidationError) -> list[str]:
    """Returns a clause about each error, without the wrong value, which may be a secret address."""
    clauses = []
    for problem in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        clauses.append(f"{name}: {key + ': ' if key else ''}{reason[:1].lower()}{reason[1:]}")
    return clauses
