"""Finds the events that a trend marks with a vertical line, such as confirmed changes and new toolchains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.text import label_baseline
from tilewatch.grouping import group_by
from tilewatch.text import change_text

MOST_NODE_CHANGES = 6
"""The most changes of node that are marked. If there are more, the runs alternate between nodes; no mark is drawn."""

Row = Mapping[str, Any]
MACHINE = itemgetter("origin", "machine")


@dataclass(frozen=True)
class Mark:
    """A vertical line on a trend, between the commits at the positions `before` and `after`."""

    before: int
    after: int
    words: str
    colour: str = colours.LINE
    dash: str = "dash"


def list_marks(points: pd.DataFrame, levels: pd.DataFrame, *, of_ratio: bool) -> list[Mark]:
    """Lists all marks of a trend."""
    return [
        *level_changes(levels),
        *toolchain_changes(points),
        *(baseline_changes(points) if of_ratio else ()),
        *node_changes(points),
        *rewrites(points),
    ]


def toolchain_changes(points: pd.DataFrame) -> Iterator[Mark]:
    """Yields a mark where the kernel's toolchain changed between two runs on the same machine."""
    for line in group_by(_list_kernel(points, "toolchain_sha256", "toolchain"), MACHINE).values():
        for before, after in _changes(line, "toolchain_sha256"):
            words = describe_difference(before["toolchain"], after["toolchain"])
            yield Mark(before["position"], after["position"], words)


def baseline_changes(points: pd.DataFrame) -> Iterator[Mark]:
    """Yields a mark where the main baseline changed between two runs on the same machine."""
    for line in group_by((row for row in _list_kernel(points, "baseline") if row["baseline"]), MACHINE).values():
        for before, after in _changes(line, "baseline"):
            names = label_baseline(before["baseline"]), label_baseline(after["baseline"])
            yield Mark(before["position"], after["position"], f"ratio to {' → '.join(names)}")


def node_changes(points: pd.DataFrame) -> list[Mark]:
    """Lists marks where the machine changed; an empty list for more than MOST_NODE_CHANGES."""
    here = [row for row in _list_kernel(points) if row["origin"] != "recorded"]
    changes = [
        Mark(before["position"], after["position"], f"{before['machine']} → {after['machine']}", dash="dot")
        for before, after in _changes(here, "machine")
    ]
    return changes if len(changes) <= MOST_NODE_CHANGES else []


def rewrites(points: pd.DataFrame) -> list[Mark]:
    """Lists marks where the branch's history was rewritten."""
    rows = [{**row, "has_left": not pd.isna(row["left_branch_at"])} for row in _list_kernel(points, "left_branch_at")]
    return [
        Mark(
            before["position"],
            after["position"],
            "before the rewrite" if after["has_left"] else "history rewritten",
            dash="longdash",
        )
        for before, after in _changes(rows, "has_left")
    ]


def level_changes(levels: pd.DataFrame) -> list[Mark]:
    """Lists marks where a confirmed change of the time began."""
    return [
        Mark(
            level["good_position"],
            level["bad_position"],
            f"{'▼' if level['direction'] == 'regression' else '▲'} {change_text(level['size'])} time "
            f"#{level['regression_id']}",
            colours.VERDICTS[level["direction"]],
            "solid",
        )
        for level in levels.to_dict("records")
    ]


def describe_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the first two differences between two toolchains, and the number of further differences."""
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    parts = [f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}" for name in changed[:2]]
    more = [f"{len(changed) - 2} more"] if len(changed) > 2 else []
    return ", ".join(parts + more)


def _changes(rows: Sequence[Row], name: str) -> Iterator[tuple[Row, Row]]:
    """Yields each pair of neighbouring rows that differ in the column `name`."""
    return (pair for pair in pairwise(rows) if pair[0][name] != pair[1][name])


def _list_kernel(points: pd.DataFrame, *names: str) -> list[Row]:
    """Lists the kernel's points with the columns that marks need. Reading all forty columns takes four times longer."""
    columns = ("role", "position", "origin", "machine", *names)
    rows = (
        dict(zip(columns, row, strict=True)) for row in zip(*(points[name].tolist() for name in columns), strict=True)
    )
    return [row for row in rows if row["role"] == "kernel"]
