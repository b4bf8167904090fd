"""Shows one series of a regression: its trend with the step, the replay, what moved in the code, the commands."""

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.charts import marks, trend
from tilewatch.dashboard.frames import evidence, explanation, reads
from tilewatch.dashboard.frames.metrics import METRICS
from tilewatch.dashboard.text import commit_address
from tilewatch.dashboard.widgets import plots, tables
from tilewatch.text import count_text, plain, plain_code, short_sha

COMMITS_BEFORE, COMMITS_AFTER = 25, 15
"""Commits around the first bad one in the picture: with more the step is too narrow to see."""


def show_step(url: str, found: pd.Series, row: pd.Series, measured: reads.Evidence | None) -> None:
    """Shows the trend of a series around the change, and below it the replays that confirmed it; none without
    evidence."""
    points = reads.points(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"], static_facts=False)
    points = around(points, found["bad_sha"])
    metric = next((each for each in METRICS if each.values(points)["value"].notna().any()), None)
    st.subheader(plain(f"{row['kernel']} {row['problem']} on {row['gpu_name']}"), anchor=False)
    if metric is None:
        st.caption("No point of this series is in this database.")
    else:
        levels = reads.levels(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"])
        lines = [*marks.level_changes(levels), *marks.toolchain_changes(points)]
        figure = go.Figure(trend.trend(points, metric, marks=lines))
        plots.show(figure, "step", f"{metric.label} around the change")
    for i, replay in enumerate(measured.replays if measured else ()):
        st.text(evidence.replay_sentence(replay))
        if replay.failure is None:
            figure = evidence_charts.replay(replay.good_us, replay.bad_us)
            plots.show(figure, f"replay-{i}", "Times of the old and the new cubin by launch")


def around(points: pd.DataFrame, sha: str) -> pd.DataFrame:
    """The points of the commits around this one; the newest commits where it has no point."""
    commits = list(dict.fromkeys(points["sha"]))
    at = commits.index(sha) if sha in commits else len(commits)
    wanted = commits[max(at - COMMITS_BEFORE, 0) : at + COMMITS_AFTER]
    return points[points["sha"].isin(wanted)].reset_index(drop=True)


def show_commits(found: pd.Series) -> None:
    """Shows where the diff of the change is, and the command that prints it in a clone."""
    one = found["commits_in_range"] <= 1
    st.subheader("The commit" if one else f"{count_text(found['commits_in_range'], 'commit')} in range", anchor=False)
    st.text(
        f"{short_sha(found['bad_sha'])} {found['bad_subject']}"
        + ("" if one else f"\nand all after {short_sha(found['good_sha'])} {found['good_subject']}")
    )
    show = f"git show {found['bad_sha']}" if one else f"git log --patch {found['good_sha']}..{found['bad_sha']}"
    st.code(show, language="bash", wrap_lines=True)
    address = commit_address(found["repository"], found["bad_sha"])
    if address:
        st.link_button("Open the commit at its forge", address)


def show_code(measured: reads.Evidence) -> None:
    """Shows which static facts of the winner moved, its counters, and the commands that measure it again."""
    st.subheader("What moved in the code", anchor=False)
    new, old = measured.winner, measured.winner_before
    if new is not None and old is not None:
        facts = evidence.static_facts(before=old, this_run=new)
        moved = facts[facts["before"] != facts["this run"]]
        if old.params != new.params:
            st.markdown(
                f"Another config won: {plain_code(config_text(old.params))} before, "
                f"{plain_code(config_text(new.params))} now."
            )
        if moved.empty:
            st.caption("Every static fact of the winner is as before.")
        else:
            tables.show(moved, key="moved")
    else:
        st.caption("The cubins of both sides are not in this database.")
    counted = explanation.tabulate_counters(measured)
    if "before" in counted:
        st.subheader("Hardware counters", anchor=False)
        tables.show(counted[["counter", "before", "this run", "change"]], key="counters", height="content")
        st.caption(plain(explanation.write_counters_source(measured)))
    st.subheader("Repeat it", anchor=False)
    st.caption(f"On a machine with this GPU model, {plain(measured.run.gpu_name)}, in a clone of the repository:")
    st.code(evidence.repeat_commands(measured), language="bash", wrap_lines=True)
