"""Compares changes over the shapes of problems and over GPU models, which narrows down their cause. Pure.

The frames are those of `findings.add_findings`.
"""

import math
import re

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.frames import findings
from tilewatch.text import change_text

SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:-\w+)?")
"""M, N and K of a problem, which may name its type after them."""
CHANGE_SPAN = 0.1
LOG_AXIS = {"type": "log", "zeroline": False, "tickformat": "d", "autotickangles": [0, 90]}
"""Whole numbers: Plotly would write 32576 as 32.576k. Upright where they do not fit side by side, as on a phone."""
NEAREST = 0.06
"""Ticks are apart by this share of their axis: their numbers, turned on a phone, are 14 of its 240 pixels high."""
ABOVE, BELOW = "top center", "bottom center"
ROOMY = 2.0
"""Doublings of M between two marks that leave room for the words of both."""
SMALLEST, LARGEST = 16, 44
"""Diameters in pixels of the problems with the smallest and the largest K."""


def shape_map(pairs: pd.DataFrame) -> go.Figure:
    """One mark per problem at its N and M, as large as its K, in the colour of its median change of speed.

    A difference of which nothing is claimed counts as no change in the colour.
    """
    shaped = pairs.dropna(subset="change").assign(shape=pairs["problem"].map(_shape)).dropna(subset="shape")
    rows = [_problem(name, group) for name, group in shaped.groupby("problem", sort=True)]
    problems = pd.DataFrame(rows, columns=["m", "n", "k", "claimed", "label", "hint"])
    root = problems["k"] ** 0.5
    share = (root - root.min()) / max(root.max() - root.min(), 1)
    figure = go.Figure(
        go.Scatter(
            x=problems["n"],
            y=problems["m"],
            mode="markers+text",
            text=problems["label"],
            textposition=_sides(problems),
            cliponaxis=False,
            customdata=problems["hint"],
            hovertemplate="%{customdata}<extra></extra>",
            marker={
                "size": SMALLEST + (LARGEST - SMALLEST) * share,
                "color": problems["claimed"],
                "colorscale": colours.SLOWER_TO_FASTER,
                "cmin": -CHANGE_SPAN,
                "cmax": CHANGE_SPAN,
                "cmid": 0,
                "line": {"width": 1, "color": colours.LINE},
                "colorbar": {
                    "title": {"text": "change of speed", "side": "right"},
                    "tickformat": "+.0%",
                    "thickness": 12,
                    "outlinewidth": 0,
                },
            },
        )
    )
    figure.update_layout(
        height=420,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={**LOG_AXIS, "title": "N (log)", "tickvals": _ticks(problems["n"])},
        yaxis={**LOG_AXIS, "title": "M (log)", "tickvals": _ticks(problems["m"])},
    )
    return figure


def _sides(problems: pd.DataFrame) -> list[str]:
    """Where the words of each mark are: on the side that is farther from the next mark of its N; where neither is near,
    not on the side of the mark to its left, whose words they would meet on a phone."""
    sides: dict[tuple[int, int], str] = {}
    for m, row in problems.sort_values("n").groupby("m"):
        last = ABOVE
        for n in row["n"]:
            others = [math.log2(other / m) for other in problems.loc[problems["n"] == n, "m"] if other != m]
            above = min([ROOMY, *(gap for gap in others if gap > 0)])
            below = min([ROOMY, *(-gap for gap in others if gap < 0)])
            last = (BELOW if last == ABOVE else ABOVE) if above == below else ABOVE if above > below else BELOW
            sides[m, n] = last
    return [sides[place] for place in zip(problems["m"], problems["n"], strict=True)]


def _ticks(sizes: "pd.Series[int]") -> list[int]:
    """The sizes, without those right after another one: a mark beside a tick names its size under the pointer."""
    span = math.log(sizes.max() / sizes.min()) if len(sizes) else 0.0
    kept: list[int] = []
    for size in sorted(set(sizes)):
        if not kept or math.log(size / kept[-1]) >= NEAREST * span:
            kept.append(int(size))
    return kept


def keep_shaped(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows whose problem has M, N and K; a softmax or an attention has not."""
    return pairs[pairs["problem"].map(_shape).notna()]


def _shape(problem: str) -> tuple[int, int, int] | None:
    match = SHAPE.fullmatch(problem)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _problem(name: str, group: pd.DataFrame) -> tuple[object, ...]:
    m, n, k = group["shape"].iloc[0]
    middle = float(group["change"].median())
    lines = [
        f"{row['gpu_name']}: {change_text(row['change'])}"
        + ("" if row["finding"] in findings.CLAIMS else f" ({row['finding']})")
        for row in group.sort_values("change").to_dict("records")
    ]
    claimed = float(group["change"].where(group["finding"].isin(findings.CLAIMS), 0.0).median())
    return m, n, k, claimed, change_text(middle), "<br>".join([f"<b>{name}</b>", *lines])


def list_moved(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each kernel and problem that changed anywhere, one column per GPU model, with what the pattern means."""
    compared = pairs.dropna(subset="change")
    models = sorted(set(compared["gpu_model"]))
    rows = []
    for (kernel, problem), group in compared.groupby(["kernel", "problem"], sort=True):
        moved = group[group["finding"].isin(findings.DIFFERENT)]
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
    """What the GPU models on which it changed have in common."""
    archs, models = sorted(set(moved["arch"])), sorted(set(moved["gpu_model"]))
    if len(all_models) == 1:
        return "measured on one GPU model only"
    if len(models) == len(all_models):
        return "everywhere: the algorithm"
    if len(archs) == 1:
        siblings = set(all_models[all_models["arch"] == archs[0]]["gpu_model"])
        if siblings == set(models):
            return f"{archs[0]} alone: its code generation"
        return f"{' and '.join(models)} alone, not all of {archs[0]}: its node, its GPU or noise"
    return "several architectures"


def _cell(row: dict[object, object] | None) -> str:
    if row is None:
        return ""
    change = change_text(float(row["change"]))  # type: ignore[arg-type]
    if row["finding"] in findings.CLAIMS:
        return change
    return f"{change} {row['finding']}" if row["finding"] in findings.DIFFERENT else f"≈ {change}"
