"""What the pointer is told over a point: lines of plain text, and how Plotly wants them. Knows no figure, no page."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from dashboard.wording import change_text, commit_text, ratio_to, short, time_text


def of_series(row: Mapping[Any, Any]) -> list[str]:
    """How one series stands and what changed, from a row of `changes.pair`."""
    lines = [
        f"{row['kernel']} {row['problem']}, {row['gpu_name']}",
        f"{short(row['sha'])} {commit_text(row['subject'], row['author'], row['committed_at'])}",
        "without a baseline" if pd.isna(row["ratio"]) else _ratio(row),
        f"median {time_text(row['median_us'])} ({time_text(row['low_us'])} to {time_text(row['high_us'])})",
    ]
    if not pd.isna(row["change"]):
        lines.append(
            f"speed {change_text(row['change'])} since {short(row['sha_before'])} "
            f"({change_text(row['change_low'])} to {change_text(row['change_high'])})"
        )
    if row["verdict"]:
        lines.append(f"{row['verdict']}: {row['reason']}")
    return lines


def marked_up(lines: Sequence[str]) -> str:
    """As Plotly's hover text, whose markup is HTML's; the first line is the heading."""
    first, *others = map(escape, lines)
    return "<br>".join([f"<b>{first}</b>", *others])


def _ratio(row: Mapping[Any, Any]) -> str:
    return f"{ratio_to(row['ratio'], row['baseline'])} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
