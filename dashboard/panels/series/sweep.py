"""Shows one sweep: its outcomes, fastest configs, previously chosen configs and static facts.

The page refreshes until the sweep has ended. Widgets have keys, so that a refresh keeps the visitor's choices.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import parallel, search_space
from tilewatch.dashboard.charts import sweep as sweep_charts
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.metrics import US_GB, US_TFLOP
from tilewatch.dashboard.panels.series import sweep_winner
from tilewatch.dashboard.text import count_decimals, first_line, rate_unit
from tilewatch.dashboard.widgets import filters, plots, tables
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.text import change_text, count_text, plain, plain_code, short_sha

BEST_CONFIGS = 10
A_MONTH = dt.timedelta(days=30)


def show(url: str, sweep: pd.Series) -> None:
    """Shows a sweep's winner, outcomes, fast configs and static facts. Updates itself while the sweep is unfinished."""
    with show_errors():
        trials = sweep_charts.prepare(reads.trials(url, sweep["id"]), sweep["axes"])
        if trials.empty:
            st.info("This sweep has no configs yet.")
            return
        measured = reads.measurements(url, sweep["id"])
        tie = set(measured.iloc[0]["tie"]) if len(measured) else set()
        sweep_winner.show(trials, measured, sweep, tie)
        plots.show(sweep_charts.outcomes(trials), "outcomes", "How the configs of this sweep ended", bar=False)
        settled = trials[trials["outcome"] != "waiting"]
        if settled.empty:
            st.info(
                f"None of the {count_text(len(trials), 'config')} is compiled yet. "
                "A compile worker takes them in batches."
            )
            return
        _failures(trials)
        show_regrets(url, trials, sweep, tie)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            _cells(trials, sweep)
        with right:
            _best(trials, tie, sweep)
        _all_parameters(trials)
        _configs(url, trials, sweep)


def _failures(trials: pd.DataFrame) -> None:
    failed = trials[trials["outcome"].isin(search_space.FAILURES)]
    if failed.empty:
        return
    kinds = ", ".join(f"{outcome} {count}" for outcome, count in failed["outcome"].value_counts().items())
    title = f"{count_text(len(failed), 'config')} failed: {kinds}"
    tables.show_in_expander(title, "failed", lambda: group_failures(failed))


def group_failures(failed: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of the numbers of failed configs by outcome and reason."""
    lines = failed.assign(reason=failed["failure"].map(first_line))
    table = lines.groupby(["outcome", "reason"]).size().rename("configs").reset_index()
    return table.sort_values("configs", ascending=False)


def show_regrets(url: str, trials: pd.DataFrame, sweep: pd.Series, tie: set[int]) -> None:
    """Shows how much slower the library's default config and earlier winners are than the fastest config."""
    if trials["median_us"].isna().all():
        return
    rows = [search_space.regret(name, params, trials, tie) for name, params in _chosen_before(url, sweep)]
    if not rows:
        return
    st.subheader("Cost of an earlier choice", anchor=False)
    table = pd.DataFrame(
        {
            "the config of": [row.name for row in rows],
            "config": [row.config for row in rows],
            "us": ["" if row.median_us is None else f"{row.median_us:.1f}" for row in rows],
            "slower than the fastest": ["" if row.slower is None else change_text(row.slower) for row in rows],
            "": [row.why for row in rows],
        }
    )
    tables.show(table, key="regrets", column_config={"us": st.column_config.TextColumn(alignment="right")})


def _chosen_before(url: str, sweep: pd.Series) -> list[tuple[str, Mapping[str, Any]]]:
    chosen: list[tuple[str, Mapping[str, Any]]] = []
    for name, config in (("the library's host code", sweep["ships"]), ("the tile table", sweep["tile_table"])):
        if config:
            chosen.append((name, config))
    winners = reads.winners(url, sweep["repository"], sweep["kernel"], sweep["problem"], sweep["gpu_model"])
    older = winners[winners["position"] < sweep["position"]]
    month = older[older["committed_at"] <= sweep["committed_at"] - A_MONTH]
    for name, rows in (("the winner of the commit before", older), ("last month's winner", month)):
        if len(rows):
            newest = rows.iloc[0]
            chosen.append((f"{name}, {short_sha(newest['sha'])}", newest["params"]))
    return chosen


def _all_parameters(trials: pd.DataFrame) -> None:
    drawn = parallel.drawing(trials)
    if not drawn["axes"] or not drawn["lines"]:  # a config alone differs in nothing
        return
    st.subheader("Over all parameters", anchor=False)
    plots.show_parallel(drawn, "parallel")
    st.caption(
        "Drag along an axis to keep the configs that pass there, click on it to keep all again; drag its name to "
        "move the axis. Teal is better."
    )


def _cells(trials: pd.DataFrame, sweep: pd.Series) -> None:
    axes = [name for name, values in sweep["axes"] if len(values) > 1]
    st.subheader("Over two parameters", anchor=False)
    facts = [fact for fact in sweep_charts.FACTS if trials[fact.key].notna().any()]
    if len(axes) < 2 or not facts:
        st.caption("The configs differ in fewer than two parameters." if facts else "No config compiled yet.")
        return
    across, down, value = st.columns(3)
    with across:
        x = filters.pick("Across", axes, "x")
    with down:
        y = filters.pick("Down", [axis for axis in axes if axis != x], "y")
    with value:
        label = filters.pick("Colour", [fact.label for fact in facts], "fact")
    fact = next(fact for fact in facts if fact.label == label)
    figure = sweep_charts.cells(trials, x, y, fact)
    plots.show(figure, "cells", f"{fact.label} over {x} and {y}")
    st.caption(f"Each cell: {fact.cell}, of the configs that differ in the other parameters.")


def _best(trials: pd.DataFrame, tie: set[int], sweep: pd.Series) -> None:
    timed = list_fastest(trials)
    if timed.empty:
        _ranges(trials)
        return
    st.subheader(f"The {len(timed)} fastest configs", anchor=False)
    table, unit = tabulate_fastest(timed, tie, sweep)
    number = st.column_config.NumberColumn
    rate = number(format=f"%.{count_decimals(table[unit])}f")
    tables.show(table, key="best", column_config={"us": number(format="%.1f"), unit: rate})
    common = common_text(timed, [name for name, _ in sweep["axes"]])
    meaning = "; ≈ not distinguishable from the winner" if "tie" in table else ""
    st.caption(f"Times of the few samples of the sweep{meaning}. {plain(common)}")


def list_fastest(trials: pd.DataFrame) -> pd.DataFrame:
    return trials.dropna(subset="median_us").sort_values("median_us").head(BEST_CONFIGS)


def tabulate_fastest(timed: pd.DataFrame, tie: set[int], sweep: pd.Series) -> tuple[pd.DataFrame, str]:
    """Returns a table of timed configs, and the unit of their throughput."""
    fastest_us = timed["median_us"].min()
    slower = [change_text(us / fastest_us - 1) if us > fastest_us else "" for us in timed["median_us"]]
    table = _params(timed, sweep)
    table.insert(0, "us", timed["median_us"])
    table.insert(1, "slower", slower)
    tied = timed["config_id"].isin(list(tie))
    if tied.any():
        table.insert(2, "tie", tied.map({True: "≈", False: ""}))
    unit = rate_unit(sweep["flops"], sweep["bytes"])
    work = sweep["bytes"] / US_GB if unit == "GB/s" else sweep["flops"] / US_TFLOP
    table[unit] = work / timed["median_us"]
    return table, unit


def common_text(fastest: pd.DataFrame, axes: Sequence[str]) -> str:
    """Returns in words the parameters that all configs share; empty for a single config."""
    if len(fastest) < 2:
        return ""
    same = [f"{name}={fastest[f'param.{name}'].iloc[0]}" for name in axes if fastest[f"param.{name}"].nunique() == 1]
    return f"All of them have {', '.join(same)}." if same else "They have no parameter in common."


def _ranges(trials: pd.DataFrame) -> None:
    """Shows the ranges of static facts, such as registers, for a sweep that was compiled but not measured."""
    st.subheader("Static facts", anchor=False)
    compiled = trials.dropna(subset="registers")
    if compiled.empty:
        st.caption("No config compiled.")
        return
    lines = list_ranges(compiled, len(trials), trials["compile_s"].sum())
    tables.show_few([{"fact": name, "configs": words} for name, words in lines.items()])


def list_ranges(compiled: pd.DataFrame, trials: int, compile_s: float) -> dict[str, str]:
    """Maps each static fact to words on the range of its values."""

    def count_whole(share: pd.Series, without: str) -> str:
        return without if share.isna().all() else f"{(share == 100).sum():,}"

    return {
        "compiled": f"{len(compiled):,} of {trials:,}",
        "without spills": f"{(compiled['stack_bytes'] == 0).sum():,}",
        "every MMA on Tensor Cores": count_whole(compiled["tensor_core_share"], "there is no MMA"),
        "every load through TMA": count_whole(compiled["tma_share"], "there is no load"),
        "registers per thread": f"{compiled['registers'].min():.0f} to {compiled['registers'].max():.0f}",
        "compile time, median": f"{compiled['compile_s'].median():.1f} s",
        "compile time, all": f"{compile_s:.0f} s" if compile_s < 120 else f"{compile_s / 60:,.1f} min",
    }


def _configs(url: str, trials: pd.DataFrame, sweep: pd.Series) -> None:
    """Shows a table of all configs, sorted by id so that new results do not move the rows."""
    st.subheader("All configs", anchor=False)
    trials = trials.sort_values("config_id")
    table = _params(trials, sweep)
    table.insert(0, "outcome", trials["outcome"])
    for column, name in (
        ("median_us", "us"),
        ("error", "error"),
        ("registers", "registers"),
        ("stack_bytes", "stack bytes"),
        ("shared_bytes", "shared bytes"),
        ("code_bytes", "code bytes"),
        ("compile_s", "compile s"),
    ):
        if trials[column].notna().any():
            table[name] = trials[column]
    table["TMA"] = _of(trials, "tma_loads", "loads")
    table["Tensor Core"] = _of(trials, "tensor_core_mmas", "mmas")
    table["failure"] = trials["failure"].map(first_line)
    number = st.column_config.NumberColumn
    picked = tables.pick_row(
        table,
        trials,
        f"configs-{sweep['id']}",
        height=360,
        column_config={
            "us": number(format="%.1f"),
            "error": number(format="%.2g"),
            "compile s": number(format="%.1f"),
            "stack bytes": number(help="stack per thread: spilled registers"),
            "shared bytes": number(help="shared memory per block"),
            "code bytes": number(help="machine code"),
            "TMA": st.column_config.TextColumn(help="loads that became TMA, of all loads"),
            "Tensor Core": st.column_config.TextColumn(help="MMAs that became Tensor Core code, of all MMAs"),
        },
    )
    if picked is not None:
        _remarks(url, sweep["id"], picked)
    else:
        st.caption("Select a row for the compiler's remarks on that config.")


def _params(trials: pd.DataFrame, sweep: pd.Series) -> pd.DataFrame:
    """Returns the parameters of each config in the order of the search space."""
    return pd.DataFrame({name: trials[f"param.{name}"] for name, _ in sweep["axes"]})


def _of(trials: pd.DataFrame, part: str, whole: str) -> list[str]:
    pairs = zip(trials[part], trials[whole], strict=True)
    return ["" if pd.isna(part) or pd.isna(whole) else f"{part:.0f} of {whole:.0f}" for part, whole in pairs]


def _remarks(url: str, sweep_id: int, trial: pd.Series) -> None:
    with st.container(border=True):
        st.markdown(f"{plain_code(sweep_charts.config_of_trial(trial.to_dict()))}")
        if trial["failure"]:
            st.code(trial["failure"], language=None, wrap_lines=True)
        remarks = reads.remarks(url, sweep_id, trial["config_id"])
        if remarks.empty:
            st.caption("The compiler left no remarks.")
            return
        tables.show(remarks, key="remarks")
