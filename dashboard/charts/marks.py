"""Finds what is marked on a trend besides its points: confirmed changes, changes of toolchain, baseline and node. Pure.

A mark lies between two commits; the figure computes where that is on its axis.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.text import rival_text
from tilewatch.text import change_text

MOST_NODE_CHANGES = 6
"""With more, the runs of the series alternate between nodes, and no change of node is shown."""


@dataclass(frozen=True)
class Mark:
    """A line after the commit at the position `before` and up to the commit at `after`."""

    before: int
    after: int
    words: str
    colour: str = colours.LINE
    dash: str = "dash"


def toolchain_changes(points: pd.DataFrame) -> Iterator[Mark]:
    """Where the toolchain of the kernel's runs changed, per machine: another machine's driver is not a change."""
    kernel = _kernel(points, "origin", "machine", "toolchain_sha256", "toolchain")
    for _, line in kernel.groupby(["origin", "machine"], sort=False):
        for before, after in _changes(line, "toolchain_sha256"):
            yield Mark(before.position, after.position, describe_difference(before.toolchain, after.toolchain))


def baseline_changes(points: pd.DataFrame) -> Iterator[Mark]:
    """Where the main baseline changed, per machine."""
    compared = _kernel(points, "origin", "machine", "baseline").dropna(subset="baseline")
    for _, line in compared.groupby(["origin", "machine"], sort=False):
        for before, after in _changes(line, "baseline"):
            names = rival_text(before.baseline), rival_text(after.baseline)
            yield Mark(before.position, after.position, f"ratio to {' → '.join(names)}")


def node_changes(points: pd.DataFrame) -> list[Mark]:
    """Where the machine of the series changed; recordings come from elsewhere and do not count."""
    here = _kernel(points, "origin", "machine")
    changes = [
        Mark(before.position, after.position, f"{before.machine} → {after.machine}", dash="dot")
        for before, after in _changes(here[here["origin"] != "recorded"], "machine")
    ]
    return changes if len(changes) <= MOST_NODE_CHANGES else []


def level_changes(levels: pd.DataFrame) -> list[Mark]:
    """Where a confirmed change began a new level; sizes are of the time, so plus is slower."""
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
    """What differs between two toolchains, the first two parts in words."""
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    parts = [f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}" for name in changed[:2]]
    more = [f"{len(changed) - 2} more"] if len(changed) > 2 else []
    return ", ".join(parts + more)


def _changes(points: pd.DataFrame, name: str) -> Iterator[tuple[Any, Any]]:
    """Each point whose next differs in a column, and that next one."""
    values = points[name].to_numpy(dtype=object)
    for i in np.flatnonzero(values[1:] != values[:-1]):
        yield tuple(points.iloc[i : i + 2].itertuples(index=False))


def _kernel(points: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The kernel's points with their position and these columns: all forty would take four times as long."""
    return points.loc[points["role"] == "kernel", ["position", *names]]
