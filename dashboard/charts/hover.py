"""Writes the hover texts of points, as plain lines or as Plotly's templates."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tilewatch.configs import config_text
from tilewatch.dashboard.frames import differences
from tilewatch.dashboard.frames.metrics import Metric
from tilewatch.dashboard.text import commit_text, label_baseline, moment, ratio_to, source_text, time_text
from tilewatch.text import change_text, count_text, plain_html, short_sha, shorten, write_change

RUN = 0
"""The index of the run's id in the customdata of each point."""
LONGEST_SUBJECT = 72
"""Most letters of a commit's subject: as many as Git's own tools show. A hover text with longer ones covers the chart,
and each point of a chart repeats them: 0.5 MB of the site of all recordings (2026-11-30)."""

MOST_REMEMBERED = 4096
"""The most texts of commits and times to keep, because many points share a commit or run. Writing a year's dates took a
third of the time of all hover texts (2026-11)."""


def series_lines(row: Mapping[Any, Any]) -> list[str]:
    """Returns lines of text about one series and its change."""
    lines = [
        f"{row['kernel']} {row['problem']}, {row['gpu_name']}",
        _write_commit(row["sha"], row["subject"], row["author"], row["committed_at"]),
        "without a baseline" if pd.isna(row["ratio"]) else _ratio(row),
        f"median {time_text(row['median_us'])} ({time_text(row['low_us'])} to {time_text(row['high_us'])})",
        f"config {config_text(row['params'])}",
    ]
    if not pd.isna(row["change"]):
        other_gpu = row["gpu_name"] != row["gpu_name_before"]
        lines.append(
            f"{_write_change(row, other_gpu=other_gpu)} "
            f"{'against ' + row['gpu_name_before'] if other_gpu else 'since ' + short_sha(row['sha_before'])} "
            f"({change_text(row['change_low'])} to {change_text(row['change_high'])})"
        )
        lines += _split(row)
    if row["finding"]:
        lines.append(f"finding: {differences.write(row)}")
    if row["verdict"]:
        lines.append(f"verdict of {short_sha(row['sha'])}: {row['verdict']}: {row['reason']}")
    lines.append(source_text(row["origin"], row["machine"], row["measured_at"]))
    return lines


def _write_change(row: Mapping[Any, Any], *, other_gpu: bool) -> str:
    """Returns the change of a row in words."""
    if not row["of_ratio"]:
        return write_change(row["change"])
    return f"{change_text(row['change']) if other_gpu else write_change(row['change'])} beside the baseline"


def _split(row: Mapping[Any, Any]) -> list[str]:
    """Returns a list with a text on the kernel's and the baseline's change of time; [] if the baseline changed."""
    if pd.isna(row["ratio"]) or pd.isna(row["ratio_before"]) or row["baseline"] != row["baseline_before"]:
        return []
    now, before = row["ratio"] * row["median_us"], row["ratio_before"] * row["median_us_before"]
    own = f"ours {change_text(row['median_us'] / row['median_us_before'] - 1)} time"
    return [f"{own}, {label_baseline(row['baseline'])} {change_text(now / before - 1)} time"]


def points_hover(line: pd.DataFrame, metric: Metric) -> tuple[str, npt.NDArray[np.object_]]:
    """Returns Plotly's `hovertemplate` and `customdata` for the points of one implementation."""
    about = {name: line[name].tolist() for name in _OF_POINTS}
    kernel = line["role"].iloc[0] == "kernel"
    ratio, timed = metric.key == "ratio", metric.key != "time_us"
    parts = [
        ("<b>", _each(_commit, about, "role", "sha", "subject", "author", "committed_at")),
        ("</b><br><b>", _each(plain_html, about, "implementation")),
        (": ", _each(metric.write, about, "value")),
        (" ", _each(lambda name: plain_html(label_baseline(name)), about, "baseline") if ratio else []),
        ("", ["</b>"] * len(line)),
        (" ", [_interval(low, high, metric) for low, high in zip(about["low"], about["high"], strict=True)]),
        ("<br>median ", _each(time_text, about, "median_us") if timed else []),
        (" of ", _each(lambda count: count_text(count, "sample"), about, "samples") if timed else []),
        ("<br>config ", _each_document(lambda each: plain_html(config_text(each)) if each else "", about["params"])),
        ("<br>", _each(lambda origin, machine: f"{origin} on {plain_html(machine)}", about, "origin", "machine")),
        (", ", _each(lambda node, gpu: "" if node.endswith(gpu) else plain_html(gpu), about, "machine", "device_name")),
        (", driver ", _each_document(lambda versions: plain_html(versions.get("driver") or ""), about["toolchain"])),
        (", ", ["while this GPU was quarantined" if ill else "" for ill in about["quarantined"]]),
        ("<br>measured ", list(map(_moment, about["measured_at"]))),
        ("<br>", _each(_verdict, about, "verdict", "reason") if kernel else []),
    ]
    # Sharing makes a figure of a thousand points a third as large.
    return _shared(about["run_id"], [(before, words) for before, words in parts if any(words)])


_OF_POINTS = (
    *("run_id", "sha", "subject", "author", "committed_at", "implementation", "baseline", "value", "low", "high"),
    *("median_us", "samples", "params", "origin", "machine", "device_name", "toolchain", "quarantined", "measured_at"),
    *("verdict", "reason", "role"),
)


def _shared(run_ids: list[int], parts: list[tuple[str, list[str]]]) -> tuple[str, npt.NDArray[np.object_]]:
    """Returns Plotly's `hovertemplate` with the texts that all points share, and `customdata` with the others."""
    template = ""
    columns: list[list[Any]] = [run_ids]
    for before, words in parts:
        if all(words):
            template += before
        else:  # skip the separator too if a point lacks these words
            words = [before + each if each else "" for each in words]
        if len(set(words)) == 1:
            template += words[0].replace("%{", "%&#123;")  # Plotly would read it as a placeholder
        else:
            template += f"%{{customdata[{len(columns)}]}}"
            columns.append(words)
    customdata = np.empty((len(run_ids), len(columns)), dtype=object)
    for i, column in enumerate(columns):
        customdata[:, i] = column
    return f"{template}<extra></extra>", customdata


def to_html(lines: Sequence[str]) -> str:
    """Returns lines as HTML for Plotly's hover texts, with the first line as heading."""
    first, *others = map(plain_html, lines)
    return "<br>".join([f"<b>{first}</b>", *others])


def _ratio(row: Mapping[Any, Any]) -> str:
    return f"{ratio_to(row['ratio'], row['baseline'])} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"


def _each(write: Callable[..., str], about: Mapping[str, list[Any]], *names: str) -> list[str]:
    """Calls `write` with each point's values of the columns `names`, and returns the texts."""
    written: dict[tuple[Any, ...], str] = {}
    values = list(zip(*(about[name] for name in names), strict=True))
    for value in values:
        if value not in written:
            written[value] = write(*value)
    return [written[value] for value in values]


def _each_document(write: Callable[[Any], str], documents: list[Any]) -> list[str]:
    """Calls `write` with each JSON document, and returns the texts."""
    written = {id(document): write(document) for document in {id(each): each for each in documents}.values()}
    return [written[id(document)] for document in documents]


@lru_cache(MOST_REMEMBERED)
def _commit(role: str, sha: str, subject: str, author: str | None, committed_at: dt.datetime) -> str:
    if role != "kernel":  # a baseline does not depend on the commit, whose subject stands at the kernel's point
        return f"{short_sha(sha)}, {committed_at:%Y-%m-%d}"
    return plain_html(_write_commit(sha, subject, author, committed_at))


def _write_commit(sha: str, subject: str, author: str | None, committed_at: dt.datetime) -> str:
    return f"{short_sha(sha)} {commit_text(shorten(subject, LONGEST_SUBJECT), author, committed_at)}"


_moment = lru_cache(MOST_REMEMBERED)(moment)


def _interval(low: float, high: float, metric: Metric) -> str:
    return "" if pd.isna(low) else f"(95 %: {metric.write(low)} to {metric.write(high)})"


def _verdict(verdict: str | None, reason: str) -> str:
    return f"{verdict}: {plain_html(reason)}" if verdict else ""
