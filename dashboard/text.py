"""Writes values for people: units, precision, dates."""

import datetime as dt
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from tilewatch.baselines import BY_NAME
from tilewatch.text import WORD_JOINER, shorten

MEMORY_BOUND = 50
"""The operations per byte below which memory limits the speed on every GPU. The lowest ratios of the datasheets'
bfloat16 throughput to bandwidth are 153 (A100) and 117 (GeForce RTX 5090)."""
LOW_RATE = 10
"""The throughput below which numbers of TFLOP/s or GB/s are written with two decimals."""
MOST_LETTERS = 16
"""The most characters of a commit's subject in the label of an axis."""
RECORDINGS_COME = "`tilewatch up` itself imports the recordings that came with it, after its start."
"""A sentence for pages without measurements, because they may be opened while that import runs."""


_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[\d,.]+( %)?( \([\d,.%? to+-]+\)(, [\w ]+)?)?")
"""The pattern of a number, also with an interval as Tilewatch writes it: "+61.6 % (61.4 to 61.8), slower"."""


def without_formula(value: object) -> object:
    """Returns the value of a table cell, changed if spreadsheets would run it as a formula."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return WORD_JOINER + value


def time_text(microseconds: float) -> str:
    return f"{microseconds:,.1f} us"


def rate_unit(flops: float, bytes_moved: float) -> str:
    """Returns the unit of throughput: GB/s for problems with few operations per byte, else TFLOP/s."""
    return "GB/s" if flops < MEMORY_BOUND * bytes_moved else "TFLOP/s"


def rate_text(flops: int, bytes_moved: int, microseconds: float) -> str:
    unit = rate_unit(flops, bytes_moved)
    rate = (bytes_moved / 1e3 if unit == "GB/s" else flops / 1e6) / microseconds
    return f"{rate:,.{count_decimals([rate])}f} {unit}"


def count_decimals(rates: Iterable[float]) -> int:
    """Returns the number of decimals for a column of throughputs."""
    return 2 if any(rate < LOW_RATE for rate in rates) else 0


def ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}x"


def label_baseline(baseline: str | None) -> str:
    """Returns a baseline's label and version, e.g. "DeepGEMM 0.2.5"; "its baseline" for None."""
    if baseline is None:
        return "its baseline"
    name, _, version = baseline.partition(" ")
    label = BY_NAME[name].label if name in BY_NAME else name
    return f"{label} {version}".strip()


def ratio_to(ratio: float, baseline: str | None) -> str:
    """Returns a ratio with the name of its baseline, e.g. "0.95x DeepGEMM"."""
    return f"{ratio_text(ratio)} {label_baseline(baseline)}"


def moment(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def day(at: dt.datetime | dt.date) -> str:
    if isinstance(at, dt.datetime):
        at = at.astimezone(dt.UTC)
    return f"{at:%Y-%m-%d}"


def ago(seconds: float) -> str:
    """Returns how long ago something happened, in one unit, e.g. "3 h ago"."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def span_text(seconds: float) -> str:
    """Returns a duration in one unit, e.g. "3 h"."""
    return ago(seconds).removesuffix(" ago")


def timer_text(timer: str) -> str:
    """Returns words on a run's timer, such as ", timed with events"; empty for a simulated run."""
    return "" if timer == "simulated" else f", timed with {timer}"


def source_text(origin: str, machine: str, at: dt.datetime) -> str:
    """Returns where and when something was measured, e.g. "recorded on lab-7, 2026-11-18"."""
    return f"{origin} on {machine}, {day(at)}"


def commit_address(repository: str, sha: str) -> str | None:
    """Returns the address of a commit's page at GitHub or GitLab, else None."""
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


def label_commit(at: dt.datetime, subject: str) -> str:
    """Returns a commit's short label: its day and the beginning of its subject."""
    return f"{at:%m-%d} {shorten(subject, MOST_LETTERS)}"


def commit_text(subject: str, author: str | None, at: dt.datetime) -> str:
    """Returns a commit's subject, author (if known) and day as one text."""
    return f"{subject}, {author}, {day(at)}" if author else f"{subject}, {day(at)}"
