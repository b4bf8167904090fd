"""Figures of one sweep from its trials: how they ended, which parameters are fast, static facts and speed.

Pure. The frames are `prepare(reads.trials(...))`: one row per config, one column `param.NAME` per parameter.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.axes import LOG_NUMBERS
from tilewatch.dashboard.text import config_text
from tilewatch.text import count_text


def outcomes(trials: pd.DataFrame) -> go.Figure:
    """The outcomes of the trials as one bar."""
    counts = trials["outcome"].value_counts()
    figure = go.Figure()
    for outcome, colour in colours.OUTCOMES.items():
        if outcome in counts.index:
            figure.add_bar(
                x=[counts[outcome]],
                y=[""],
                orientation="h",
                name=f"{outcome} {counts[outcome]}",
                marker={"color": colour},
                hovertemplate=f"{outcome}: {count_text(int(counts[outcome]), 'config')}<extra></extra>",
            )
    figure.update_layout(
        barmode="stack",
        height=84,
        margin={"t": 0, "b": 0, "l": 0, "r": 0},
        legend={"orientation": "h", "traceorder": "normal", "y": 0.45, "yanchor": "top", "x": 0},
        xaxis={"visible": False, "range": [0, max(len(trials), 1)]},
        yaxis={"visible": False, "domain": [0.55, 1]},
        showlegend=True,
    )
    return figure


@dataclass(frozen=True)
class Fact:
    """A time or static fact of each config, and how the configs that share a cell are summed up."""

    key: str
    label: str
    cell: str
    summarize: str
    write: str
    more_is_better: bool = False


FACTS = (
    Fact("median_us", "Time", "fastest time, us", "min", ",.1f"),
    Fact("registers", "Registers", "median registers per thread", "median", ".0f"),
    Fact("stack_bytes", "Spills", "median stack, bytes", "median", ",.0f"),
    Fact("shared_bytes", "Shared memory", "median shared memory, bytes", "median", ",.0f"),
    Fact("compile_s", "Compile time", "median compile time, s", "median", ".1f"),
    Fact("tensor_core_share", "Tensor Core", "MMAs on Tensor Cores, %", "mean", ".0f", more_is_better=True),
    Fact("tma_share", "TMA", "loads through TMA, %", "mean", ".0f", more_is_better=True),
)


def prepare(trials: pd.DataFrame, axes: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Orders the parameters as the search space lists them (JSON keeps no order), and adds the columns
    `tensor_core_share` and `tma_share`: the percentage of MMAs on Tensor Cores and of loads through TMA."""
    params = [f"param.{name}" for name, _ in axes if f"param.{name}" in trials.columns]
    trials = trials[[*(column for column in trials.columns if column not in params), *params]]
    shares = {"tensor_core_share": ("tensor_core_mmas", "mmas"), "tma_share": ("tma_loads", "loads")}
    return trials.assign(
        **{
            name: 100 * trials[part].astype(float) / trials[whole].astype(float).where(lambda all_: all_ > 0)
            for name, (part, whole) in shares.items()
        }
    )


def cells(trials: pd.DataFrame, x: str, y: str, fact: Fact) -> go.Figure:
    """Draws a fact over two parameters. Each cell sums up the configs that differ in the others, or says why it is
    empty."""
    across, down = f"param.{x}", f"param.{y}"
    columns, rows = sorted(trials[across].unique()), sorted(trials[down].unique())
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for row in rows:
        values.append([])
        texts.append([])
        hovers.append([])
        for column in columns:
            cell = trials[(trials[across] == column) & (trials[down] == row)]
            values_of_cell = cell[fact.key].dropna().astype(float)
            value = float(values_of_cell.agg(fact.summarize)) if len(values_of_cell) else None
            values[-1].append(value)
            texts[-1].append(format(value, fact.write) if value is not None else _why_empty(cell))
            counts = "".join(f"<br>{outcome}: {count}" for outcome, count in cell["outcome"].value_counts().items())
            hovers[-1].append(f"{x}={column} {y}={row}<br>{count_text(len(cell), 'config')}{counts}")
    figure = go.Figure(
        go.Heatmap(
            x=[str(column) for column in columns],
            y=[str(row) for row in rows],
            z=values,
            text=texts,
            texttemplate="%{text}",
            customdata=hovers,
            hovertemplate="%{customdata}<br>" + fact.cell + ": %{text}<extra></extra>",
            colorscale=[(1 - at, colour) for at, colour in reversed(colours.GOOD_TO_BAD)]
            if fact.more_is_better
            else colours.GOOD_TO_BAD,
            colorbar={"title": {"text": fact.cell, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            xgap=2,
            ygap=2,
        )
    )
    present = [value for row in values for value in row if value is not None]
    if fact.more_is_better:
        figure.data[0].update(zmin=0, zmax=100)
    elif present and min(present) == max(present):  # one colour, and it is the good end
        figure.data[0].update(zmin=present[0], zmax=present[0] + 1)
    figure.update_layout(
        height=130 + 52 * len(rows),
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        xaxis={"title": x, "type": "category", "showgrid": False},
        yaxis={"title": y, "type": "category", "showgrid": False},
    )
    return figure


def _why_empty(cell: pd.DataFrame) -> str:
    """The most frequent outcome of a cell's configs, for example "timeout"."""
    return str(cell["outcome"].value_counts().index[0]) if len(cell) else ""


def parameters(trials: pd.DataFrame) -> list[str]:
    return [column.removeprefix("param.") for column in trials.columns if column.startswith("param.")]


def config_of_trial(trial: Mapping[str, Any]) -> str:
    """A row's config as people write it."""
    names = [str(column) for column in trial if str(column).startswith("param.")]
    return config_text({name.removeprefix("param."): trial[name] for name in names})


def axis_title(fact: Fact) -> str:
    units = {"median_us": "us", "stack_bytes": "bytes", "shared_bytes": "bytes"}
    unit = units.get(fact.key, "%" if fact.more_is_better else "")
    return f"{fact.label}, {unit}" if unit else fact.label


def fact_over_time(trials: pd.DataFrame, fact: Fact, tie: Collection[int]) -> go.Figure:
    """Draws the time of each config over a static fact. Colour shows spills, the shape TMA loads, an outer circle a tie
    with the winner."""
    timed = trials.dropna(subset=["median_us", fact.key])
    spills = timed["stack_bytes"].fillna(0) > 0
    figure = go.Figure()
    for spilled, colour in ((False, colours.KERNEL), (True, colours.WORSE)):
        for tma, symbol, words in _tma_kinds(timed):
            part = timed[(spills == spilled) & tma]
            if part.empty:
                continue
            figure.add_scatter(
                x=part[fact.key],
                y=part["median_us"],
                name=f"{'spills' if spilled else 'no spills'}, {words}",
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 7, "opacity": 0.8},
                customdata=[_hint(trial) for trial in part.to_dict("records")],
                hovertemplate="%{customdata}<extra></extra>",
            )
    tied = timed[timed["config_id"].isin(list(tie))]
    if len(tied):
        figure.add_scatter(
            x=tied[fact.key],
            y=tied["median_us"],
            name="not distinguishable from the winner",
            mode="markers",
            marker={"symbol": "circle-open", "size": 15, "color": colours.BETTER, "line": {"width": 2}},
            hoverinfo="skip",
        )
    figure.update_layout(
        height=380,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={"title": axis_title(fact), "zeroline": False},
        yaxis={**LOG_NUMBERS, "title": "time in the sweep, us (log)"},
        legend={"orientation": "h", "y": -0.22, "x": 0},
    )
    return figure


def _tma_kinds(trials: pd.DataFrame) -> Sequence[tuple[pd.Series, str, str]]:
    share = trials["tma_share"].fillna(0)
    return (
        (share >= 100, "circle", "all loads through TMA"),
        ((share > 0) & (share < 100), "diamond", "some loads through TMA"),
        (share <= 0, "x", "no TMA"),
    )


def _hint(trial: Mapping[str, Any]) -> str:
    lines = [f"<b>{escape(config_of_trial(trial))}</b>", f"{trial['median_us']:,.1f} us"]
    for fact in FACTS[1:]:
        if not pd.isna(trial[fact.key]):
            lines.append(f"{fact.label}: {format(float(trial[fact.key]), fact.write)}")
    return "<br>".join(lines)
