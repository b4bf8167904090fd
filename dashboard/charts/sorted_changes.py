"""Draws the sorted changes of all series between two snapshots, such as two commits."""

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours, hover
from tilewatch.dashboard.frames import differences
from tilewatch.text import plain_html, shorten

AT_EACH_END = 20
TITLE_BELOW_PX = 24
LONGEST_LABEL = 60
"""The most characters of a name beside a point. A longer name would leave no room for the points."""
SYMBOLS = {
    differences.FASTER: "circle",
    differences.SLOWER: "circle",
    differences.HIGHER: "circle",
    differences.LOWER: "circle",
    differences.NOT_JUDGED: "diamond-open",
    differences.UNDECIDED: "diamond-open",
    differences.NOT_CONFIRMED: "diamond-open",
    differences.SAME_CODE: "square-open",
    differences.NOT_APART: "circle-open",
}


def draw_sorted_changes(
    pairs: pd.DataFrame, label: str = differences.CHANGE_OF_TIME, minus: str = "minus is faster"
) -> go.Figure:
    """Draws the largest changes in both directions. Unconfirmed changes and noise are grey."""
    ordered = pairs.dropna(subset="change").sort_values("change")
    # The last row, the slowest, is drawn at the top.
    shown = ordered if len(ordered) <= 2 * AT_EACH_END else pd.concat([ordered[:AT_EACH_END], ordered[-AT_EACH_END:]])
    rows = shown.to_dict("records")
    origins = set(pairs["origin"])
    # "(recorded)" in every row adds nothing, and takes a fifth of a phone's width.
    suffix = f" ({origins.pop()})" if len(origins) == 1 else ""
    names = [f"{row['kernel']} {row['problem']} {row['where'].removesuffix(suffix)}" for row in rows]
    labels = [plain_html(shorten(name, LONGEST_LABEL)) for name in names]
    marked = [
        colours.UNCERTAIN
        if row["finding"] not in differences.CLAIMS
        else colours.VERDICTS["improvement" if row["change"] < 0 else "regression"]
        for row in rows
    ]
    figure = go.Figure(
        go.Scatter(
            x=100 * shown["change"],
            y=names,
            mode="markers",
            marker={"color": marked, "size": 9, "symbol": [SYMBOLS[finding] for finding in shown["finding"]]},
            error_x={
                "array": 100 * (shown["change_high"] - shown["change"]),
                "arrayminus": 100 * (shown["change"] - shown["change_low"]),
                "thickness": 1.2,
                "width": 3,
                "color": colours.UNCERTAIN,
            },
            customdata=[hover.to_html(hover.series_lines(row)) for row in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.add_vline(x=0, line={"width": 1, "color": colours.UNCERTAIN})
    figure.add_annotation(
        text=f"{label}, %<br>({minus})",
        x=1,
        xref="paper",
        # A phone would cut a centred title.
        xanchor="right",
        align="right",
        y=0,
        yref="paper",
        yanchor="top",
        yshift=-TITLE_BELOW_PX,
        showarrow=False,
    )
    figure.update_layout(
        height=110 + 20 * max(len(shown), 4),
        margin={"t": 10, "b": TITLE_BELOW_PX + 40, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        # A phone has room for few small numbers beside the names. Turned numbers would cover the words below them.
        xaxis={"zeroline": False, "tickangle": 0, "tickmode": "auto", "nticks": 6, "tickfont": {"size": 10}},
        yaxis={"type": "category", "automargin": True, "showgrid": False, "tickvals": names, "ticktext": labels},
    )
    return figure
