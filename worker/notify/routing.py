"""Whom to tell of what, and when: the file that TILEWATCH_TELL names, as frozen values, and the questions put to it.

Pure but for `load`. Knows no service, no message and no database. What is wrong with the file is a sentence without
the addresses in it, since those are secrets: whoever has one can write into the channel.
"""

import datetime as dt
import os
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tilewatch.errors import ExpectedError

LOG = "log"
"""The channel that is always there and needs no service: the log of whoever sends."""

DIGEST_PATIENCE = dt.timedelta(hours=6)
"""A digest that nobody could send for so long is left out: the next one tells the same."""

Topic = Literal["regression", "improvement", "alarm"]


class BadTelling(ExpectedError, ValueError):
    """The file of channels and routes makes no sense; the message is a sentence without its addresses."""


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{name!r} is no time zone; write one such as Europe/Berlin") from None
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Channel(_Strict):
    """One place where people read: an Apprise service, a webhook, or the commits of a forge.

    `*_from` names an environment variable that holds the address, for those who keep secrets out of files.
    """

    apprise: str | None = Field(default=None, repr=False)
    apprise_from: str | None = None
    webhook: str | None = Field(default=None, repr=False)
    webhook_from: str | None = None
    forge: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")
    api: str = Field(default="https://api.github.com", pattern=r"^https?://")
    quiet: bool = True  # waits while it is quiet; a forge wakes nobody and never waits

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        given = [self.apprise, self.apprise_from, self.webhook, self.webhook_from, self.forge]
        if sum(address is not None for address in given) != 1:
            raise ValueError("name exactly one of apprise, apprise_from, webhook, webhook_from and forge")
        return self


class Route(_Strict):
    """What goes where. Every route that fits is taken; `*` and `?` stand for any letters and any one letter."""

    kernel: str = "*"
    gpu: str = "*"
    about: tuple[Topic, ...] = ("regression", "alarm")
    to: tuple[str, ...] = Field(min_length=1)
    owner: str | None = None


class Quiet(_Strict):
    """From one hour to another of the zone's clock, over midnight if the second is the earlier one."""

    start: dt.time = Field(alias="from")
    end: dt.time = Field(alias="to")


class Digest(_Strict):
    at: dt.time
    to: tuple[str, ...] = Field(min_length=1)


class Telling(_Strict):
    """The whole file. Without one, everything is told to the log."""

    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    channels: dict[str, Channel] = Field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    quiet: Quiet | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _known_channels(self) -> Self:
        wanted = [name for route in self.routes for name in route.to] + list(self.digest.to if self.digest else ())
        for name in wanted:
            if name != LOG and name not in self.channels:
                known = ", ".join(sorted([*self.channels, LOG]))
                raise ValueError(f"there is no channel {name!r}; known: {known}")
        return self


def load(file: Path | None, environment: Mapping[str, str] = os.environ) -> Telling:
    """What the file says, its addresses taken from the environment where it says so; without a file, the default."""
    if file is None:
        return Telling()
    try:
        return _read(file.name, file.read_text(encoding="utf-8"), environment)
    except OSError as error:
        raise BadTelling(f"the file of channels {file} cannot be read: {error.strerror}") from None


def recipients(telling: Telling, topic: Topic, kernel: str | None, gpus: Sequence[str]) -> tuple[str, ...]:
    """The channels that want to hear of this, each once, in the order of the routes."""
    if not telling.routes:
        return (LOG,) if topic != "improvement" else ()
    fitting = [route.to for route in telling.routes if topic in route.about and _fits(route, kernel, gpus)]
    return tuple(dict.fromkeys(name for names in fitting for name in names))


def owner(telling: Telling, kernel: str | None, gpus: Sequence[str]) -> str | None:
    """Who looks after this by the first route that fits and names somebody."""
    return next((route.owner for route in telling.routes if route.owner and _fits(route, kernel, gpus)), None)


def quiet_until(telling: Telling, channel: str, now: dt.datetime) -> dt.datetime | None:
    """When this channel may be written to again; None when that is now."""
    hours, found = telling.quiet, telling.channels.get(channel)
    if hours is None or found is None or not found.quiet or found.forge:
        return None
    zone = ZoneInfo(telling.zone)
    here = now.astimezone(zone)
    for day in (here.date() - dt.timedelta(days=1), here.date()):
        over_midnight = dt.timedelta(days=1 if hours.end <= hours.start else 0)
        start = dt.datetime.combine(day, hours.start, zone)
        end = dt.datetime.combine(day + over_midnight, hours.end, zone)
        if start <= here < end:
            return end.astimezone(dt.UTC)
    return None


def digest_due(telling: Telling, now: dt.datetime) -> dt.date | None:
    """The day whose digest should be there by now; None when it is not time, or too late for it."""
    if telling.digest is None:
        return None
    zone = ZoneInfo(telling.zone)
    day = now.astimezone(zone).date()
    since = now - dt.datetime.combine(day, telling.digest.at, zone)
    return day if dt.timedelta(0) <= since < DIGEST_PATIENCE else None


def _fits(route: Route, kernel: str | None, gpus: Sequence[str]) -> bool:
    """What is about no kernel, or no GPU model, is for the routes that take any."""
    fits_kernel = route.kernel == "*" if kernel is None else fnmatchcase(kernel, route.kernel)
    return fits_kernel and (any(fnmatchcase(gpu, route.gpu) for gpu in gpus) if gpus else route.gpu == "*")


def _read(name: str, text: str, environment: Mapping[str, str]) -> Telling:
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTelling(f"{name} is not TOML: {error}") from None
    for channel, told in written.get("channels", {}).items() if isinstance(written.get("channels"), dict) else ():
        if isinstance(told, dict):
            _fill_in(f"{name}: channels.{channel}", told, environment)
    try:
        return Telling.model_validate(written)
    except ValidationError as error:
        raise BadTelling("; ".join(_sentences(name, error))) from None


def _fill_in(where: str, told: dict[str, Any], environment: Mapping[str, str]) -> None:
    for kind in ("apprise", "webhook"):
        variable = told.get(f"{kind}_from")
        if isinstance(variable, str) and kind not in told:
            if not environment.get(variable):
                raise BadTelling(f"{where} wants its address from {variable}, which is not set")
            told[kind] = environment[variable]
            del told[f"{kind}_from"]


def _sentences(name: str, error: ValidationError) -> list[str]:
    """Where and what, never the value: it may be an address."""
    clauses = []
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        said = problem["msg"].removeprefix("Value error, ")
        clauses.append(f"{name}: {place + ': ' if place else ''}{said[:1].lower()}{said[1:]}")
    return clauses
