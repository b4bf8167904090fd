"""Shows one series of a regression: the trend around the change, the replays, the commits and their diff command."""

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.charts import marks, trend
from tilewatch.dashboard.frames import evidence, reads
from tilewatch.dashboard.frames.metrics import find_drawable
from tilewatch.dashboard.panels.series import run_beside
from tilewatch.dashboard.widgets import plots
from tilewatch.text import count_text, plain, short_sha

COMMITS_BEFORE, COMMITS_AFTER = 25, 15
"""The numbers of commits in the picture before and after the first bad commit. More would make the step too narrow."""


def show_step(url: str, found: pd.Series, row: pd.Series) -> None:
    """Shows the trend of a series around the change."""
    points = reads.points(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"], static_facts=False)
    points = around(points, found["bad_sha"])
    metric = find_drawable(points)
    with st.container(key="two-lines-step"):
        st.markdown(plain(f"{row['kernel']} {row['problem']} on {row['gpu_name']}"))
    if metric is None:
        st.caption("No point of this series is in this database.")
    else:
        levels = reads.levels(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"])
        lines = [*marks.level_changes(levels), *marks.toolchain_changes(points)]
        figure = go.Figure(trend.trend(points, metric, marks=lines))
        plots.show(figure, "step", f"{metric.label} around the change")


def show_replays(measured: reads.Evidence | None) -> None:
    """Shows the replays in `measured` that confirmed the change. Shows nothing if `measured` is None."""
    for i, replay in enumerate(measured.replays if measured else ()):
        st.text(evidence.replay_sentence(replay))
        if replay.failure is None:
            figure = evidence_charts.replay(replay.good_us, replay.bad_us)
            plots.show(figure, f"replay-{i}", "Times of the old and the new cubin by launch")


def around(points: pd.DataFrame, sha: str) -> pd.DataFrame:
    """Returns the points of the commits around `sha`; those of the newest commits if `sha` was not measured."""
    commits = list(dict.fromkeys(points["sha"]))
    at = commits.index(sha) if sha in commits else len(commits)
    wanted = commits[max(at - COMMITS_BEFORE, 0) : at + COMMITS_AFTER]
    return points[points["sha"].isin(wanted)].reset_index(drop=True)


def show_commits(found: pd.Series) -> None:
    """Shows which commits may have caused the change, and how to see their diff."""
    one = found["commits_in_range"] <= 1
    st.subheader("The commit" if one else f"{count_text(found['commits_in_range'], 'commit')} in range", anchor=False)
    st.text(
        f"{short_sha(found['bad_sha'])} {found['bad_subject']}"
        + ("" if one else f"\nand all after {short_sha(found['good_sha'])} {found['good_subject']}")
    )
    run_beside.show_diff(found["repository"], None if one else found["good_sha"], found["bad_sha"])
