"""Prints the figures of a benchmark beside their bounds; a missed bound makes the exit code 1.

The first line names commit, time, machine and load, which a figure needs to be written down. Times on a machine that
others use say little: `--report-only` prints the same and ends with 0.
"""

import argparse
import datetime as dt
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    """One line of the table. `is_met` is None where there is no bound."""

    what: str
    value: str
    bound: str = ""
    is_met: bool | None = None


def at_most(what: str, value: float, most: float, unit: str = "", digits: int = 0) -> Figure:
    return Figure(what, f"{value:,.{digits}f}{unit}", f"at most {most:,g}{unit}", value <= most)


def at_least(what: str, value: float, least: float, unit: str = "", digits: int = 0) -> Figure:
    return Figure(what, f"{value:,.{digits}f}{unit}", f"at least {least:,g}{unit}", value >= least)


def exactly(what: str, value: object, wanted: object) -> Figure:
    return Figure(what, str(value), f"exactly {wanted}", value == wanted)


def not_measured(what: str, reason: str) -> Figure:
    """A figure that could not be taken misses its bound: a benchmark does not pass by measuring less."""
    return Figure(what, reason, "a figure", False)


def add_report_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report-only", action="store_true", help="end with 0 though bounds are missed")


def report(figures: Iterable[Figure], *, report_only: bool = False) -> int:
    """Print each figure as it comes. Returns the exit code: 1 when a bound is missed or there is no figure at all."""
    print(describe_run(), flush=True)
    met, missed, count = 0, [], 0
    for figure in figures:
        count += 1
        met += figure.is_met is True
        if figure.is_met is False:
            missed.append(figure)
        print(format_figure(figure), flush=True)
    if count == 0:
        print("no figure was measured")
    elif missed:
        print(f"{len(missed)} of {met + len(missed)} bounds are missed:")
        for figure in missed:
            print(f"  {figure.what}: {figure.value}, must be {figure.bound}")
    else:
        print(f"all {met} bounds are met" if met else "no figure has a bound")
    return 1 if (missed or count == 0) and not report_only else 0


def format_figure(figure: Figure) -> str:
    """What was measured comes last: it is the longest column."""
    mark = {True: "met", False: "MISSED", None: ""}[figure.is_met]
    return f"{mark:6} {figure.value:>22}  {figure.bound:18} {figure.what}"


def describe_run() -> str:
    now = dt.datetime.now(dt.UTC)
    return f"commit {_find_commit()}, {now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def _find_commit() -> str:
    """The commit of this checkout, and whether files of it were changed; "unknown" outside of Git."""
    asked = ("git", "-C", str(ROOT))
    try:
        sha = subprocess.run((*asked, "rev-parse", "--short=10", "HEAD"), capture_output=True, text=True, check=True)
        changed = subprocess.run((*asked, "status", "--porcelain"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha.stdout.strip() + (" with changes" if changed.stdout.strip() else "")
