"""Looks up tuned configs for host code. This file only needs Python 3.10, so it can be imported or copied.

`tilewatch tuned export tuned.json` writes the file that this module reads (docs/use/tuned.md):

    TABLE = tuned.load("tuned.json", kernel="gemm_fp8", gpu="NVIDIA H200", fallback={"tile_m": 128, "tile_n": 128})
    config = TABLE.find(320, 32576, 7168).config
"""

import bisect
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
"""The version of the file's format. A file with another version is refused."""

MOST_DOUBLINGS = 1.0
"""The largest distance of a measured problem whose config is used: Euclidean, in doublings of each size.

Two H200s swept 82 problems (benchmarks/tuned.py, 2026-11). Of those with another problem within 1 doubling, half lost
no time with the other problem's config, and one in twenty lost 17 % or more. Without a limit, one in twenty lost 100 %.
"""

ROUNDING = 1e-9
"""Added to the largest distance against rounding errors: otherwise 20 is further than one doubling from 10."""

KEPT_ANSWERS = 10_000
"""The most stored choices for problems outside the table, so that repeated calls are fast."""

Part = int | str
_BETWEEN_PARTS = re.compile(r"(?<=\d)x(?=\d)|[-,;:=_/ ]+")


class WrongTable(ValueError):
    """Raised if a file is damaged, or has no table for this kernel, GPU or source. The message is a sentence."""


class Choice(NamedTuple):
    """The config to launch with. `source` is "exact", "nearest" (the config of a near problem) or "fallback".

    `regret` estimates how much slower this config is than the best config: 0.02 is 2 %. It is None if unknown."""

    config: Mapping[str, Any]
    source: str
    problem: str = ""
    regret: float | None = None


class Row(NamedTuple):
    """The fastest config of a measured problem. `carried_regret` is the slowdown with the nearest problem's config."""

    problem: str
    config: Mapping[str, Any]
    carried_regret: float | None = None


class _Group(NamedTuple):
    """Problems whose names differ only in their sizes, with their configs. Sizes are logarithms to base 2, sorted."""

    firsts: list[float]
    sizes: list[tuple[float, ...]]
    choices: list[Choice]


class Table:
    """The fastest configs of one kernel on one GPU model, by problem. A table without rows only gives the fallback."""

    def __init__(
        self, rows: Iterable[Row], fallback: Mapping[str, Any], most_doublings: float = MOST_DOUBLINGS
    ) -> None:
        self._fallback = Choice(fallback, "fallback")
        self._most_doublings = most_doublings
        self._exact: dict[tuple[Part, ...], Choice] = {}
        groups: dict[tuple[str | None, ...], list[tuple[tuple[float, ...], Choice]]] = {}
        for row in rows:
            parts = split_problem(row.problem)
            self._exact[parts] = Choice(row.config, "exact", row.problem, 0.0)
            sizes = _doublings(parts)
            if sizes:
                near = Choice(row.config, "nearest", row.problem, row.carried_regret)
                groups.setdefault(_words(parts), []).append((sizes, near))
        self._groups: dict[tuple[str | None, ...], _Group] = {}
        for words, group in groups.items():
            group.sort(key=lambda each: each[0])
            self._groups[words] = _Group(
                [sizes[0] for sizes, _ in group], [sizes for sizes, _ in group], [choice for _, choice in group]
            )
        self._answers = dict(self._exact)

    def find(self, *problem: Part) -> Choice:
        """Returns the choice for a problem: this problem's config, else the nearest problem's, else the fallback.

        `find(4096, 4096, 4096, "float16")` looks up 4096x4096x4096-float16."""
        found = self._answers.get(problem)
        if found is None:
            if len(self._answers) >= KEPT_ANSWERS + len(self._exact):
                self._answers = dict(self._exact)
            parts = tuple(part for given in problem for part in _split(given))
            found = self._answers[problem] = self._exact.get(parts) or self._find_nearest(parts)
        return found

    def _find_nearest(self, problem: tuple[Part, ...]) -> Choice:
        for part in problem:
            if not isinstance(part, str) and not math.isfinite(part):
                raise ValueError(f"{part} is not the size of a problem")
        group = self._groups.get(_words(problem))
        if group is None:
            return self._fallback
        wanted, most = _doublings(problem), self._most_doublings + ROUNDING
        low = bisect.bisect_left(group.firsts, wanted[0] - most)
        high = bisect.bisect_right(group.firsts, wanted[0] + most)
        distances = [math.dist(sizes, wanted) for sizes in group.sizes[low:high]]
        nearest = min(distances, default=math.inf)
        return self._fallback if nearest > most else group.choices[low + distances.index(nearest)]


def load(
    path: str | Path,
    *,
    kernel: str,
    gpu: str,
    fallback: Mapping[str, Any],
    source: str | Path | None = None,
    most_doublings: float = MOST_DOUBLINGS,
) -> Table:
    """Returns a kernel's table for a GPU. Raises WrongTable if it is missing or damaged, or if `source` has changed."""
    tables = read_tables(path)
    try:
        return _choose_table(path, tables, kernel, gpu, fallback, source, most_doublings)
    except (AttributeError, KeyError, TypeError) as error:
        raise WrongTable(f"{path} is not from `tilewatch tuned export`: {type(error).__name__} {error}") from None
    except OSError as error:
        raise WrongTable(f"{source} cannot be read: {error.strerror}") from None


def _choose_table(
    path: str | Path,
    tables: list[dict[str, Any]],
    kernel: str,
    gpu: str,
    fallback: Mapping[str, Any],
    source: str | Path | None,
    most_doublings: float,
) -> Table:
    of_kernel = [table for table in tables if table["kernel"] == kernel]
    if not of_kernel:
        listed = ", ".join(sorted({table["kernel"] for table in tables})) or "none"
        raise WrongTable(f"{path} has no table of kernel '{kernel}'; it has {listed}")
    fitting = [table for table in of_kernel if gpu in (table["gpu_model"], *_list_gpus(table))]
    if not fitting:
        listed = ", ".join(sorted({name for table in of_kernel for name in _list_gpus(table)}))
        raise WrongTable(f"{path} has no table of kernel '{kernel}' for GPU '{gpu}'; it has {listed}")
    if len(fitting) > 1:
        listed = ", ".join(table["repository"] for table in fitting)
        raise WrongTable(
            f"{path} has several tables of kernel '{kernel}' for GPU '{gpu}': export one repository's, of {listed}"
        )
    (table,) = fitting
    if source is not None and hashlib.sha256(Path(source).read_bytes()).hexdigest() != table["source_sha256"]:
        raise WrongTable(
            f"{path} was made with another version of {Path(source).name} (commit {table['commit'][:10]}): sweep this "
            "one and export again"
        )
    rows = [Row(row["problem"], row["config"], row["carried_regret"]) for row in table["rows"]]
    return Table(rows, fallback, most_doublings)


def _list_gpus(table: Mapping[str, Any]) -> list[str]:
    """Returns the GPU names for which a table is valid, as the driver reports them."""
    return list(table.get("gpus") or [table["gpu"]])  # "gpu": files from before December 2026


def read_tables(path: str | Path) -> list[dict[str, Any]]:
    """Returns all tables of an exported file. Raises WrongTable if it is missing or damaged."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongTable(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise WrongTable(f"{path} is not from `tilewatch tuned export`: {error}") from None
    return list(parse_file(path, text)["tables"])


def parse_file(path: str | Path, text: str) -> dict[str, Any]:
    """Returns the content of an exported file, given its text. Raises WrongTable if it is damaged."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongTable(f"{path} is not from `tilewatch tuned export`: {error}") from None
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise WrongTable(f"{path} has format {version}, and this tuned.py reads format {FORMAT}")
    if not isinstance(content.get("tables"), list):
        raise WrongTable(f"{path} is not from `tilewatch tuned export`: it has no list of tables")
    return dict(content)


def split_problem(text: str) -> tuple[Part, ...]:
    """Returns the numbers and words of a problem's name: 4096x4096x4096-float16 is (4096, 4096, 4096, "float16")."""
    return tuple(int(part) if part.isdecimal() else part for part in _BETWEEN_PARTS.split(text) if part)


def _split(part: Part) -> tuple[Part, ...]:
    """Returns the numbers and words in one argument of `Table.find`, which may be a whole name."""
    return split_problem(part) if isinstance(part, str) else (part,)


def measure_distance(one: tuple[Part, ...], other: tuple[Part, ...]) -> float | None:
    """Returns the distance between two problems (see MOST_DOUBLINGS); None if the problems are not comparable."""
    if _words(one) != _words(other):
        return None
    return math.dist(_doublings(one), _doublings(other))


def _words(problem: tuple[Part, ...]) -> tuple[str | None, ...]:
    return tuple([part if isinstance(part, str) else None for part in problem])


def _doublings(problem: tuple[Part, ...]) -> tuple[float, ...]:
    return tuple([math.log2(max(part, 1)) for part in problem if not isinstance(part, str)])
