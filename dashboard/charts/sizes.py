"""Draws the throughput of a kernel and its baselines on each problem at one commit."""

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.trend_lines import draw_intervals
from tilewatch.dashboard.frames.baseline_texts import name_lines
from tilewatch.dashboard.frames.metrics import US_GB, US_TFLOP
from tilewatch.dashboard.text import count_decimals, rate_unit, time_text
from tilewatch.text import plain_html


def rate_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows with their throughput. The unit is GB/s if memory limits every problem, else TFLOP/s."""
    units = [rate_unit(*each) for each in zip(rows["flops"], rows["bytes"], strict=True)]
    unit = "TFLOP/s" if "TFLOP/s" in units else "GB/s"
    work = rows["bytes"] / US_GB if unit == "GB/s" else rows["flops"] / US_TFLOP
    return rows.assign(
        line=name_lines(rows),
        type=[problem.partition("-")[2] for problem in rows["problem"]],
        unit=unit,
        value=work / rows["median_us"],
        low=work / rows["high_us"],
        high=work / rows["low_us"],
    )


def sizes(rated: pd.DataFrame) -> go.Figure:
    """Draws throughput by problem, with a line for each implementation and data type."""
    figure, decimals = go.Figure(), count_decimals(rated["value"])
    for (name, role, kind), line in rated.groupby(["line", "role", "type"], sort=False):
        colour = colours.colour_of(line["implementation"].iloc[-1], role)
        figure.add_scatter(
            x=line["problem"].map(plain_html),
            y=line["value"],
            error_y=draw_intervals(line),
            name=plain_html(f"{name}, {kind}" if rated["type"].nunique() > 1 else name),
            mode="lines+markers",
            line={"color": colour, "width": 2.5 if role == "kernel" else 1.5},
            marker={"color": colour, "size": 10 if role == "kernel" else 7},
            customdata=[time_text(us) for us in line["median_us"]],
            hovertemplate=f"%{{x}}: %{{y:,.{decimals}f}} {line['unit'].iloc[0]}, median %{{customdata}}",
        )
    order = list(dict.fromkeys(rated["problem"].map(plain_html)))
    figure.update_layout(
        height=460,
        margin={"t": 20, "b": 10, "l": 10, "r": 10},
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
        showlegend=True,
        xaxis={
            "title": "problem, the fewest operations first",
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
        },
        yaxis={"title": rated["unit"].iloc[0], "rangemode": "tozero", "zeroline": False},
    )
    return figure


def rate_table(rated: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of throughputs with a row per problem and a column per implementation."""
    order = list(dict.fromkeys(rated["problem"].map(plain_html))), list(dict.fromkeys(rated["line"]))
    table = rated.pivot_table(index="problem", columns="line", values="value", aggfunc="first")
    return table.reindex(index=order[0], columns=order[1]).add_suffix(f", {rated['unit'].iloc[0]}").reset_index()
