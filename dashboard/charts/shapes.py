"""Changes over the shapes of problems, and over GPU models: where is it, and so what made it? Pure.

The frames are of `changes.pair`.
"""

import re
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.text import change_text

SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:-\w+)?")
"""M, N and K of a problem, which may name its type after them."""
CHANGE_SPAN = 0.1
SMALLEST, LARGEST = 16, 44
"""Diameters in pixels of the problems with the smallest and the largest K."""

EVERYWHERE = "everywhere: the algorithm"
MIXED = "several architectures"


def shape_map(pairs: pd.DataFrame) -> go.Figure:
    """One mark per problem at its N and M, as large as its K, in the colour of its median change of speed."""
    shaped = pairs.dropna(subset="change").assign(shape=pairs["problem"].map(_shape)).dropna(subset="shape")
    rows = [_problem(name, group) for name, group in shaped.groupby("problem", sort=True)]
    places = pd.DataFrame(rows, columns=["m", "n", "k", "change", "label", "told"])
    root = places["k"] ** 0.5
    share = (root - root.min()) / max(root.max() - root.min(), 1)
    figure = go.Figure(
        go.Scatter(
            x=places["n"],
            y=places["m"],
            mode="markers+text",
            text=places["label"],
            textposition="bottom center",
            customdata=places["told"],
            hovertemplate="%{customdata}<extra></extra>",
            marker={
                "size": SMALLEST + (LARGEST - SMALLEST) * share,
                "color": places["change"],
                "colorscale": colours.SLOWER_TO_FASTER,
                "cmin": -CHANGE_SPAN,
                "cmax": CHANGE_SPAN,
                "cmid": 0,
                "line": {"width": 1, "color": colours.LINE},
                "colorbar": {"title": {"text": "change of speed", "side": "right"}, "thickness": 12, "outlinewidth": 0},
            },
        )
    )
    figure.update_layout(
        height=420,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={"title": "N (log)", "type": "log", "zeroline": False, "tickvals": sorted(set(places["n"]))},
        yaxis={"title": "M (log)", "type": "log", "zeroline": False, "tickvals": sorted(set(places["m"]))},
    )
    return figure


def keep_shaped(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows whose problem is a shape: those of a softmax or an attention have no M, N and K."""
    return pairs[pairs["problem"].map(_shape).notna()]


def _shape(problem: str) -> tuple[int, int, int] | None:
    found = SHAPE.fullmatch(problem)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _problem(name: str, group: pd.DataFrame) -> tuple[object, ...]:
    m, n, k = group["shape"].iloc[0]
    middle = float(group["change"].median())
    told = [
        f"{row['gpu_name']}: {change_text(row['change'])}" + ("" if row["apart"] else " (intervals overlap)")
        for row in group.sort_values("change").to_dict("records")
    ]
    return m, n, k, middle, change_text(middle), "<br>".join([f"<b>{name}</b>", *told])


def list_moved(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each kernel and problem that moved anywhere, one column per GPU model, and what the pattern says."""
    known = pairs.dropna(subset="change")
    models = sorted(set(known["gpu_model"]))
    rows = []
    for (kernel, problem), group in known.groupby(["kernel", "problem"], sort=True):
        moved = group[group["apart"]]
        for sign, direction in ((moved["change"] < 0, "slower"), (moved["change"] > 0, "faster")):
            if sign.any():
                cells = dict(zip(group["gpu_model"], group.to_dict("records"), strict=True))
                rows.append(
                    {
                        "kernel": kernel,
                        "problem": problem,
                        "moved": direction,
                        "where": explain_pattern(moved[sign], group),
                        "worst": float(moved[sign]["change"].abs().max()),
                        **{model: _cell(cells.get(model)) for model in models},
                    }
                )
    table = pd.DataFrame(rows, columns=["kernel", "problem", "moved", "where", "worst", *models])
    order = table.assign(bad=table["moved"] == "slower").sort_values(["bad", "worst"], ascending=False)
    return order.drop(columns=["worst", "bad"])


def explain_pattern(moved: pd.DataFrame, all_models: pd.DataFrame) -> str:
    """What the GPU models on which it moved have in common."""
    archs, models = sorted(set(moved["arch"])), sorted(set(moved["gpu_model"]))
    if len(all_models) == 1:
        return "measured on one GPU model only"
    if len(models) == len(all_models):
        return EVERYWHERE
    if len(archs) == 1:
        siblings = set(all_models[all_models["arch"] == archs[0]]["gpu_model"])
        if siblings == set(models):
            return f"{archs[0]} alone: its code generation"
        return f"{_listed(models)} alone, not all of {archs[0]}: its node, its GPU or noise"
    return MIXED


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _cell(row: dict[object, object] | None) -> str:
    if row is None:
        return ""
    change = float(row["change"])  # type: ignore[arg-type]
    return change_text(change) if row["apart"] else f"≈ {change_text(change)}"
