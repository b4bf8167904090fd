"""Compares the configs of two sweeps, and computes how much slower a config is than the fastest config."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.axes import log_numbers
from tilewatch.dashboard.charts.sweep import config_of_trial, parameters
from tilewatch.dashboard.text import first_line
from tilewatch.text import change_text, count_text, plain_html, shorten

LAUNCHED = ("wrong", "launch error", "crashed", "hung")
FAILURES = ("timeout", "compile error", *LAUNCHED)
MOVED = 0.02
"""The largest relative difference of two times that counts as noise. A sweep times a config only a few times."""
LONGEST_NAME = 60
"""The most characters of a winner's name in the legend."""


@dataclass(frozen=True)
class Regret:
    """How much slower a config is than the fastest config. `slower` is 0.05 for 5 % more time."""

    name: str
    config: str
    median_us: float | None
    slower: float | None
    why: str


def regret(name: str, params: Mapping[str, Any], trials: pd.DataFrame, tie: Collection[int]) -> Regret:
    """Compares the config `params` with the fastest config. `tie` has the ids of the equally fast configs."""
    text = config_text({name: params[name] for name in parameters(trials) if name in params} or params)
    same = pd.Series(True, index=trials.index)
    for parameter in parameters(trials):
        same &= trials[f"param.{parameter}"] == params.get(parameter)
    own = trials[same]
    if own.empty:
        return Regret(name, text, None, None, "not in this search space")
    trial = own.iloc[0]
    if pd.isna(trial["median_us"]):
        return Regret(name, text, None, None, trial["outcome"])
    slower = float(trial["median_us"] / trials["median_us"].min() - 1)
    tied = trial["config_id"] in set(tie)
    return Regret(name, text, float(trial["median_us"]), slower, "not distinguishable from the winner" if tied else "")


def pair_trials(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per config of two sweeps. `change` is 0.05 for 5 % more time."""
    keep = ["config_id", "outcome", "median_us", "failure"]
    named = [f"param.{name}" for name in parameters(after)]
    both = (
        after[[*keep, *named]]
        .astype(dict.fromkeys(named, object))
        .merge(before[keep], on="config_id", how="outer", suffixes=("_after", "_before"), indicator="side")
    )
    both["change"] = both["median_us_after"].astype(float) / both["median_us_before"].astype(float) - 1
    return both


def describe_shift(both: pd.DataFrame) -> str:
    """Returns a sentence on how the times changed between the two sweeps."""
    change = both["change"].dropna()
    if change.empty:
        return "No config was timed at both commits."
    slower, faster = int((change > MOVED).sum()), int((change < -MOVED).sum())
    return (
        f"The time of the median config changed by {change_text(float(change.median()))}; "
        f"of {count_text(len(change), 'config')} timed at both, "
        f"{slower:,} are more than {100 * MOVED:.0f} % slower and {faster:,} as much faster."
    )


def shift_figure(both: pd.DataFrame, winners: Sequence[tuple[str, int]]) -> go.Figure:
    """Draws each config's change of time against its earlier time, with stars at the winners."""
    timed = both.dropna(subset="change")
    figure = go.Figure(
        go.Scatter(
            x=timed["median_us_before"],
            y=100 * timed["change"],
            mode="markers",
            name="config",
            marker={"size": 6, "color": colours.KERNEL, "opacity": 0.85},
            customdata=[
                f"<b>{plain_html(config_of_trial(row))}</b><br>"
                f"{row['median_us_before']:,.1f} → {row['median_us_after']:,.1f} us, {change_text(row['change'])}"
                for row in timed.to_dict("records")
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    for (name, config_id), symbol in zip(winners, ("star-open", "star"), strict=False):
        own = timed[timed["config_id"] == config_id]
        figure.add_scatter(
            x=own["median_us_before"],
            y=100 * own["change"],
            name=plain_html(shorten(name, LONGEST_NAME)),
            mode="markers",
            marker={"size": 15, "symbol": symbol, "color": colours.BETTER, "line": {"width": 2}},
            hoverinfo="skip",
        )
    figure.add_hline(y=0, line={"width": 1, "color": colours.LINE})
    figure.update_layout(
        height=360,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={**log_numbers(timed["median_us_before"]), "title": "time before, us (log)"},
        yaxis={"title": "change of time, % (plus is slower)", "zeroline": False},
        legend={"orientation": "h", "y": -0.24, "x": 0},
    )
    return figure


def changed_outcomes(both: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Maps each kind of change, such as "Newly failing", to a table of its configs."""
    trials = both[both["side"] == "both"].dropna(subset=["outcome_before", "outcome_after"])
    before, after = trials["outcome_before"], trials["outcome_after"]
    waits = before.isin(["waiting"]) | after.isin(["waiting"])
    is_launched_once = (before == "compiled") & after.isin(LAUNCHED) | (after == "compiled") & before.isin(LAUNCHED)
    trials = trials[~(waits | is_launched_once)]
    failed_before, failed_after = trials["outcome_before"].isin(FAILURES), trials["outcome_after"].isin(FAILURES)
    kinds = {
        "Newly failing": ~failed_before & failed_after,
        "Failing in another way": failed_before & failed_after & (trials["outcome_before"] != trials["outcome_after"]),
        "Working again": failed_before & ~failed_after,
    }
    return {kind: _outcomes(trials[rows]) for kind, rows in kinds.items() if rows.any()}


def _outcomes(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "config": [config_of_trial(row) for row in rows.to_dict("records")],
            "before": rows["outcome_before"].to_numpy(),
            "after": rows["outcome_after"].to_numpy(),
            "failure": [first_line(text) if isinstance(text, str) else "" for text in rows["failure_after"]],
        }
    )


def describe_space_changes(both: pd.DataFrame) -> str:
    """Returns a sentence on how many configs were added and removed; empty without such configs."""
    only_before, only_after = int((both["side"] == "right_only").sum()), int((both["side"] == "left_only").sum())
    if not only_before and not only_after:
        return ""
    came, went = count_text(only_after, "config"), count_text(only_before, "config")
    return f"The search space changed: {came} added, {went} removed."


def rank(trials: pd.DataFrame, config_id: int) -> tuple[int, int] | None:
    """Returns a config's rank by time and the number of timed configs; None if it was not timed."""
    timed = trials.dropna(subset="median_us").sort_values(["median_us", "config_id"])["config_id"].tolist()
    return (timed.index(config_id) + 1, len(timed)) if config_id in timed else None
