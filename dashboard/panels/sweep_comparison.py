"""What moved between two sweeps of one search space: its landscape, its winner, and which configs work."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import landscape
from tilewatch.dashboard.charts import sweep as sweep_charts
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import filters, plots
from tilewatch.text import change_text, count_text, short_sha

THE_ONE_BEFORE = "the one before"


def show(url: str, sweeps: pd.DataFrame, after: pd.Series) -> None:
    """`sweeps` are all of this search space, the newest commit first; `after` is the later one."""
    earlier = sweeps[(sweeps["position"] < after["position"]) & (sweeps["reason"] == after["reason"])]
    if earlier.empty:
        earlier = sweeps[sweeps["position"] < after["position"]]
    if earlier.empty:
        st.info("This is the oldest commit of this search space; move the slider to a later one.")
        return
    commits = earlier.drop_duplicates("sha")
    names = commits["sha"].map(short_sha)
    picked = filters.pick("Compared with", [THE_ONE_BEFORE, *names], "before")
    before = commits.iloc[0] if picked == THE_ONE_BEFORE else commits[names == picked].iloc[0]
    st.caption(f"{short_sha(before['sha'])} {before['subject']} → {short_sha(after['sha'])} {after['subject']}")
    trials_before = sweep_charts.prepare(reads.trials(url, before["id"]), before["axes"])
    trials_after = sweep_charts.prepare(reads.trials(url, after["id"]), after["axes"])
    both = landscape.pair_trials(trials_before, trials_after)
    if changed := landscape.describe_space_changes(both):
        st.warning(changed)
    winners = _winners(url, before, after)
    _drift(winners, trials_before, trials_after)
    st.subheader("Landscape", anchor=False)
    st.markdown(landscape.describe_shift(both))
    if both["change"].notna().any():
        marks = [(f"winner at {sha}", config_id) for sha, config_id in winners]
        plots.show(landscape.shift_figure(both, marks), "shift", "Change of each config's time over its earlier time")
    _endings(both)


def _winners(url: str, *sweeps: pd.Series) -> list[tuple[str, int]]:
    """The commit and the winning config of each of these sweeps that has one."""
    newest = sweeps[0]
    found = reads.winners(url, newest["repository"], newest["kernel"], newest["problem"], newest["gpu_model"])
    won = []
    for sweep in sweeps:
        own = found[found["sweep_id"] == sweep["id"]]
        if len(own):
            won.append((short_sha(sweep["sha"]), int(own.iloc[0]["config_id"])))
    return won


def _drift(winners: list[tuple[str, int]], before: pd.DataFrame, after: pd.DataFrame) -> None:
    st.subheader("The winner", anchor=False)
    if len(winners) < 2:
        st.caption("Not both sweeps have a winner, so there is nothing to say about it.")
        return
    if winners[0][1] == winners[1][1]:
        st.success("The same config won both.")
    rows = []
    for sha, config_id in dict.fromkeys(winners):
        own = after[after["config_id"] == config_id]
        known = own if len(own) else before[before["config_id"] == config_id]
        rows.append(
            {
                "won at": sha,
                "config": sweep_charts.config_of_trial(known.iloc[0].to_dict()),
                "place before": _place(before, config_id),
                "place after": _place(after, config_id),
            }
        )
    st.dataframe(pd.DataFrame(rows), hide_index=True, key="drift")


def _place(trials: pd.DataFrame, config_id: int) -> str:
    """E.g. "3 of 48, +1.2 %": how far behind the fastest of that sweep."""
    place = landscape.rank(trials, config_id)
    own = trials[trials["config_id"] == config_id]
    if place is None:
        return str(own.iloc[0]["outcome"]) if len(own) else "not in the space"
    slower = float(own.iloc[0]["median_us"] / trials["median_us"].min() - 1)
    return f"{place[0]} of {place[1]}, {change_text(slower)}"


def _endings(both: pd.DataFrame) -> None:
    st.subheader("Configs that end differently", anchor=False)
    kinds = landscape.changed_outcomes(both)
    if not kinds:
        st.success("Every config that is in both sweeps ended the same way.")
    for kind, rows in kinds.items():
        st.markdown(f"**{kind}: {count_text(len(rows), 'config')}**")
        st.dataframe(rows, hide_index=True, key=f"newly-{kind}")
