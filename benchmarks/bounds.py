"""Prints the figures of a benchmark, each with its bound. The exit code is 1 if a bound is missed.

bounds.toml holds, for each figure, its bound, the least number of cases that it must be taken of, and what a case is. A
figure of fewer cases misses its bound.

The first line names commit, time, machine and load, which belong to every figure that is written down. Times on a
machine that others use mean little: with `--report-only` the output is the same and the exit code 0. `--write FILE`
also stores the figures that have a bound, for docs/develop/measurements.md."""

import argparse
import datetime as dt
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BOUNDS = ROOT / "benchmarks" / "bounds.toml"
KINDS = ("at_most", "at_least", "exactly", "within", "between")
GPUS = Path("/proc/driver/nvidia/gpus")
NOT_MEASURED = (":!benchmarks/results", ":!docs")
"""Paths that may differ from the commit while figures are taken, because no benchmark measures them."""


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark's table. `is_met` says whether the bound is met, and is None if there is no bound."""

    what: str
    value: str
    bound: str = ""
    is_met: bool | None = None
    cases: int = 0


@dataclass(frozen=True)
class Bound:
    """What every figure with a name like `name` must be, and the least number of cases that it must be taken of. `of`
    says what a case is.

    `limit` is "asked" if only the run itself knows the limit, such as the number of jobs that it submitted."""

    name: str
    kind: str
    limit: Any
    cases: int
    of: str
    unit: str = ""
    digits: int = 0


@dataclass(frozen=True)
class Result:
    """The figures with a bound that one command measured, and where and when it ran."""

    command: str
    commit: str
    date: str
    machine: str
    figures: tuple[Figure, ...]


@functools.cache
def read_bounds(file: Path = BOUNDS) -> Mapping[str, Sequence[Bound]]:
    """Returns the bounds of each benchmark. The key is the name of the benchmark's module."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))["bounds"]
    return {name: tuple(_read_bound(*each) for each in table.items()) for name, table in tables.items()}


def _read_bound(name: str, fields: Mapping[str, Any]) -> Bound:
    ((kind, limit),) = ((kind, fields[kind]) for kind in KINDS if kind in fields)
    return Bound(name, kind, limit, **{key: value for key, value in fields.items() if key != kind})


def find_bound(what: str) -> Bound | None:
    """Returns the bound of a figure; None where it has none."""
    every = itertools.chain.from_iterable(read_bounds().values())
    return next((bound for bound in every if fnmatchcase(what, bound.name)), None)


def measure(what: str, value: Any, *, cases: int, wanted: Any = None, text: str | None = None) -> Figure:
    """Returns a figure with its bound from bounds.toml. `wanted` is the limit if only the run knows it, and `text` is
    printed instead of the number. Raises KeyError if the figure has no bound."""
    bound = find_bound(what)
    if bound is None:
        raise KeyError(f"'{what}' has no bound in {BOUNDS.name}")
    limit = wanted if bound.limit == "asked" else bound.limit
    if bound.kind == "exactly":
        figure = exactly(what, value, limit)
    elif bound.kind == "at_most":
        figure = at_most(what, value, limit, bound.unit, bound.digits)
    elif bound.kind == "at_least":
        figure = at_least(what, value, limit, bound.unit, bound.digits)
    elif bound.kind == "within":
        figure = Figure(what, f"{value:g}{bound.unit}", f"within {limit:g}{bound.unit}", value <= limit)
    else:
        low, high = limit
        ends = f"{low:g}{bound.unit} to {high:g}{bound.unit}"
        figure = Figure(what, f"{value:.{bound.digits}f}{bound.unit}", ends, low <= value <= high)
    return replace(figure, value=figure.value if text is None else text, cases=cases)


def require_cases(figure: Figure) -> Figure:
    """Returns the figure. It misses its bound if it was taken of fewer cases than the bound asks for."""
    bound = find_bound(figure.what)
    if bound is None or figure.is_met is None or figure.cases >= bound.cases:
        return figure
    return replace(figure, value=f"{figure.value} of {figure.cases} cases", is_met=False)


def at_most(what: str, value: float, most: float, unit: str = "", digits: int = 0) -> Figure:
    is_met = value <= most
    return Figure(what, f"{_round(value, most, digits, is_met)}{unit}", f"at most {most:,g}{unit}", is_met)


def at_least(what: str, value: float, least: float, unit: str = "", digits: int = 0) -> Figure:
    is_met = value >= least
    return Figure(what, f"{_round(value, least, digits, is_met)}{unit}", f"at least {least:,g}{unit}", is_met)


def _round(value: float, limit: float, digits: int, is_met: bool) -> str:
    """Returns the value with so many digits. A value that misses its limit has more if it would read like the limit:
    0.849 misses 0.85."""
    while not is_met and round(value, digits) == limit:
        digits += 1
    return f"{value:,.{digits}f}"


def exactly(what: str, value: object, wanted: object) -> Figure:
    return Figure(what, str(value), f"exactly {wanted}", value == wanted)


def not_measured(what: str, reason: str) -> Figure:
    """Returns a figure that was not measured, with the reason. It misses its bound, because a benchmark must not pass
    by measuring less."""
    return Figure(what, reason, "a figure", False)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report-only", action="store_true", help="end with 0 though bounds are missed")
    parser.add_argument("--write", type=_read_place, metavar="FILE", help="store the figures that have a bound")


def _read_place(text: str) -> Path:
    """Returns the path of the file for `--write`. A missing folder is refused at once, before the figures of half an
    hour are lost."""
    file = Path(text)
    if not file.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {file.parent}")
    return file


def report(
    figures: Iterable[Figure], *, report_only: bool = False, write: Path | None = None, may_be_few: bool = False
) -> int:
    """Prints each figure as it comes, and stores those with a bound in the file `write`. With `may_be_few`, which is
    for tests, figures of few cases may meet their bounds.

    Returns the exit code: 1 if a bound is missed or there is no figure at all."""
    print(describe_run(), flush=True)
    measured: list[Figure] = []
    for figure in figures if may_be_few else map(require_cases, figures):
        measured.append(figure)
        print(format_figure(figure), flush=True)
    print(summarize(measured))
    if write is not None:
        write_result(write, describe(measured))
    is_good = bool(measured) and all(figure.is_met is not False for figure in measured)
    return 0 if is_good or report_only else 1


def summarize(figures: list[Figure]) -> str:
    bounded = [figure for figure in figures if figure.is_met is not None]
    missed = [figure for figure in bounded if not figure.is_met]
    if missed:
        lines = [f"  {figure.what}: {figure.value}, must be {figure.bound}" for figure in missed]
        return "\n".join((f"{len(missed)} of {len(bounded)} bounds are missed:", *lines))
    if bounded:
        return f"all {len(bounded)} bounds are met"
    return "no figure has a bound" if figures else "no figure was measured"


def format_figure(figure: Figure) -> str:
    """Returns a line of the table. The figure's name comes last, because it is the longest column."""
    mark = {True: "met", False: "MISSED", None: ""}[figure.is_met]
    return f"{mark:6} {figure.value:>22}  {figure.bound:18} {figure.what}"


def describe_run() -> str:
    now = dt.datetime.now(dt.UTC)
    load = os.getloadavg()[0]
    return f"commit {find_commit()}, {now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {load:.1f}"


def read_results(folder: Path = RESULTS) -> dict[str, Result]:
    """Returns the stored results by the name of their file."""
    return {file.stem: read_result(file) for file in sorted(folder.glob("*.json"))}


def read_result(file: Path) -> Result:
    fields = json.loads(file.read_text(encoding="utf-8"))
    return Result(**{**fields, "figures": tuple(Figure(**each) for each in fields["figures"])})


def write_result(file: Path, result: Result) -> None:
    file.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")


def describe(figures: Sequence[Figure]) -> Result:
    """Returns the result of the running command: its figures that have a bound."""
    bounded = tuple(figure for figure in figures if figure.is_met is not None)
    return Result(find_command(), find_commit(), f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", describe_machine(), bounded)


def find_command() -> str:
    """Returns the command line without the options that only say what to do with the figures."""
    spec = sys.modules["__main__"].__spec__
    words = ["python -m", (spec.name if spec else Path(sys.argv[0]).stem).removesuffix(".__main__"), *sys.argv[1:]]
    return re.sub(r" --(report-only|write[ =]\S+)", "", " ".join(words))


def find_commit() -> str:
    """Returns the commit of this checkout, followed by a note if files were changed. Returns "unknown" outside of
    Git."""
    asked = ("git", "-C", str(ROOT))
    try:
        sha = subprocess.run((*asked, "rev-parse", "--short=10", "HEAD"), capture_output=True, text=True, check=True)
        status = (*asked, "status", "--porcelain", "--", ".", *NOT_MEASURED)
        changed = subprocess.run(status, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def describe_machine() -> str:
    """Returns the number of cores and the GPU models that the driver lists."""
    models = [re.findall(r"Model:\s+(.+)", file.read_text()) for file in sorted(GPUS.glob("*/information"))]
    return f"{os.cpu_count()} cores, {', '.join(itertools.chain(*models)) or 'no GPU'}"
