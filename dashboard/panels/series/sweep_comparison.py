"""Compares two sweeps of a kernel on a problem."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import search_space
from tilewatch.dashboard.charts import sweep as sweep_charts
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import filters, plots, tables
from tilewatch.text import change_text, count_text, plain, short_sha


def show(url: str, sweeps: pd.DataFrame, after: pd.Series) -> None:
    """Shows how the sweep `after` differs from an earlier sweep."""
    earlier = sweeps[(sweeps["position"] < after["position"]) & (sweeps["reason"] == after["reason"])]
    if earlier.empty:
        earlier = sweeps[sweeps["position"] < after["position"]]
    if earlier.empty:
        st.info("This is the oldest commit of this search space; pick a later sweep.")
        return
    commits = earlier.drop_duplicates("sha")
    before = filters.pick_or_newest(commits, "Compared with", "before", filters.PREVIOUS).iloc[0]
    st.caption(
        f"{short_sha(before['sha'])} {plain(before['subject'])} → {short_sha(after['sha'])} {plain(after['subject'])}"
    )
    trials_before = sweep_charts.prepare(reads.trials(url, before["id"]), before["axes"])
    trials_after = sweep_charts.prepare(reads.trials(url, after["id"]), after["axes"])
    both = search_space.pair_trials(trials_before, trials_after)
    measured = pd.concat([reads.measurements(url, sweep["id"]) for sweep in (before, after)])
    if is_slim := any("whole_sweep" in detail for detail in measured["detail"]):  # tools/slim_recording.py left it out
        st.info("A recording has the winner of its sweep alone, so the search spaces are not compared.")
    elif changed := search_space.describe_space_changes(both):
        st.warning(plain(changed))
    winners = _winners(url, before, after)
    _drift(winners, trials_before, trials_after, "not in the recording" if is_slim else "not in the space")
    st.subheader("Times of all configs", anchor=False)
    st.markdown(search_space.describe_shift(both))
    if both["change"].notna().any():
        marks = [(f"winner at {sha}", config_id) for sha, config_id in winners]
        plots.show(search_space.shift_figure(both, marks), "shift", "Change of each config's time by its earlier time")
    if (both["side"] == "both").any():
        _outcomes(both)


def _winners(url: str, *sweeps: pd.Series) -> list[tuple[str, int]]:
    """Lists each sweep's commit and winning config id, without sweeps that have no winner."""
    newest = sweeps[0]
    everything = reads.winners(url, newest["repository"], newest["kernel"], newest["problem"], newest["gpu_model"])
    winners = []
    for sweep in sweeps:
        own = everything[everything["sweep_id"] == sweep["id"]]
        if len(own):
            winners.append((f"{short_sha(sweep['sha'])} {sweep['subject']}", int(own.iloc[0]["config_id"])))
    return winners


def _drift(winners: list[tuple[str, int]], before: pd.DataFrame, after: pd.DataFrame, absent: str) -> None:
    st.subheader("The winner", anchor=False)
    if len(winners) < 2:
        st.caption("Only sweeps with a winner can be compared here; one of these has none.")
        return
    if winners[0][1] == winners[1][1]:
        st.success("The same config won both.")
    rows = []
    for sha, config_id in dict.fromkeys(winners):
        own = after[after["config_id"] == config_id]
        trial = own if len(own) else before[before["config_id"] == config_id]
        rows.append(
            {
                "won at": sha,
                "config": sweep_charts.config_of_trial(trial.iloc[0].to_dict()),
                "rank before": _rank(before, config_id, absent),
                "rank after": _rank(after, config_id, absent),
            }
        )
    tables.show(pd.DataFrame(rows), key="drift")


def _rank(trials: pd.DataFrame, config_id: int, absent: str) -> str:
    """Returns a config's rank and slowdown, e.g. "3 of 48, +1.2 %"; its outcome if it has no time."""
    rank = search_space.rank(trials, config_id)
    own = trials[trials["config_id"] == config_id]
    if rank is None:
        return str(own.iloc[0]["outcome"]) if len(own) else absent
    slower = float(own.iloc[0]["median_us"] / trials["median_us"].min() - 1)
    return f"{rank[0]} of {rank[1]}, {change_text(slower)}"


def _outcomes(both: pd.DataFrame) -> None:
    st.subheader("Configs with another outcome", anchor=False)
    kinds = search_space.changed_outcomes(both)
    if not kinds:
        st.success("Every config that is in both sweeps had the same outcome.")
    for kind, rows in kinds.items():
        st.markdown(f"**{kind}: {count_text(len(rows), 'config')}**")
        tables.show(rows, key=f"newly-{kind}")
