"""Writes values for people: units, precision, dates. Knows no page and no database."""

import datetime as dt
import re
from urllib.parse import urlsplit

from tilewatch.baselines import BY_NAME
from tilewatch.text import WORD_JOINER

MEMORY_BOUND = 50
"""Operations per byte below which the memory is the limit on every GPU: the datasheets of an A100 and of a GeForce RTX
5090, which do least for their bandwidth, have 153 and 117 in bfloat16."""


_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[\d,.]+( %)?( \([\d,.%? to+-]+\)(, [\w ]+)?)?")
"""Also one of ours with its interval: "+61.6 % (61.4 to 61.8), slower"."""


def without_formula(value: object) -> object:
    """A cell of a table that a person may open with a spreadsheet: text that it would calculate begins with something
    that nobody sees. Numbers stay, also in per cent."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return WORD_JOINER + value


def time_text(microseconds: float) -> str:
    return f"{microseconds:,.1f} us"


def rate_unit(flops: float, bytes_moved: float) -> str:
    """The rate that says how good a time is: what it computes, or what it moves where the memory is the limit."""
    return "GB/s" if flops < MEMORY_BOUND * bytes_moved else "TFLOP/s"


def rate_text(flops: int, bytes_moved: int, microseconds: float) -> str:
    unit = rate_unit(flops, bytes_moved)
    return f"{(bytes_moved / 1e3 if unit == 'GB/s' else flops / 1e6) / microseconds:,.0f} {unit}"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}x"


def rival_text(baseline: str | None) -> str:
    """The name that people use for a baseline, with its version where the name has one; an unknown one stays as it
    is."""
    if baseline is None:
        return "its baseline"
    name, _, version = baseline.partition(" ")
    label = BY_NAME[name].label if name in BY_NAME else name
    return f"{label} {version}".strip()


def ratio_to(ratio: float, baseline: str | None) -> str:
    """A ratio with what it is to, e.g. "0.95x DeepGEMM"."""
    return f"{ratio_text(ratio)} {rival_text(baseline)}"


def moment(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def day(at: dt.datetime | dt.date) -> str:
    if isinstance(at, dt.datetime):
        at = at.astimezone(dt.UTC)
    return f"{at:%Y-%m-%d}"


def ago(seconds: float) -> str:
    """How long ago, in the one unit that matters."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def span_text(seconds: float) -> str:
    """How long, in the one unit that matters."""
    return ago(seconds).removesuffix(" ago")


def timer_text(timer: str) -> str:
    """What timed a run, to stand behind its GPU; empty for a simulated run, which nothing timed."""
    return "" if timer == "simulated" else f", timed with {timer}"


def source_text(origin: str, machine: str, at: dt.datetime) -> str:
    """Where a measurement comes from, e.g. "recorded on lab-7, 2026-11-18"."""
    return f"{origin} on {machine}, {day(at)}"


def commit_address(repository: str, sha: str) -> str | None:
    """The page of a commit at GitHub or GitLab; None for a repository that is named by no address of one."""
    parts = urlsplit(repository)
    host = parts.hostname or ""
    if parts.scheme != "https" or not re.fullmatch("[0-9a-f]{40}", sha):
        return None
    path = parts.path.removesuffix("/").removesuffix(".git")
    for forge, middle in (("github", "/commit/"), ("gitlab", "/-/commit/")):
        if host.split(".")[0] == forge:
            return f"https://{parts.netloc}{path}{middle}{sha}"
    return None


def first_line(text: str | None) -> str:
    return text.strip().splitlines()[0] if text and text.strip() else ""


def commit_text(subject: str, author: str | None, at: dt.datetime) -> str:
    """A commit after its hash: its subject, its author if there is one, its day."""
    return f"{subject}, {author}, {day(at)}" if author else f"{subject}, {day(at)}"
