"""Draws how much time each step of tuning an FP8 matrix product saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.text import time_text
from tilewatch.text import change_text, plain_html

HAND_PICKED = {"tile_m": 128, "tile_n": 128, "tile_k": 128, "num_ctas": 1}
GUIDES = {"tile_m": 512, "tile_n": 512, "tile_k": 512, "num_ctas": 8}


@dataclass(frozen=True)
class Step:
    """A tuning step: a kernel, and the parameter values that its configs must have in this step."""

    name: str
    kernel: str
    config: Mapping[str, int]


STEPS = (
    Step("first tiles, row by row", "gemm_tiled", {**HAND_PICKED, "group_size_m": 1}),
    Step("swizzle: groups of 8 rows", "gemm_tiled", {**HAND_PICKED, "group_size_m": 8}),
    Step("the guide's tiles in clusters of 8", "gemm_tiled", GUIDES),
    Step("persistent blocks, tiles by hand", "gemm_fp8", {**HAND_PICKED, "occupancy": 1}),
    Step("the best tiles of all", "gemm_fp8", {}),
    Step("hints: warps, blocks at once", "gemm_nt_fp8", {}),
    Step("fast accumulation", "gemm_fp8_hinted", {"fast_acc": 1}),
)
BASELINES = ("deepgemm", "cublaslt")

B200_SIZE = "320x32576x7168"
B200_US = (("first tiles with the swizzle", 130.0), ("persistent blocks", 87.5), ("the best of 500 configs", 80.0))
B200_DEEPGEMM_US = 77.0
"""The time of DeepGEMM on a B200, as given by the engineers who asked for this product. It was not measured here."""


@dataclass(frozen=True)
class Bar:
    """The time of a step or a baseline. `config` is empty for a baseline."""

    name: str
    implementation: str
    time_us: float
    config: Mapping[str, Any]
    sweep: Any

    @property
    def is_baseline(self) -> bool:
        return self.implementation in BASELINES


def find_bar(step: Step, trials: pd.DataFrame, sweep: pd.Series) -> Bar | None:
    """Returns the bar of the fastest trial with the step's parameter values; None without such a trial."""
    timed = trials.dropna(subset="median_us").sort_values("median_us")
    for name, value in step.config.items():
        if f"param.{name}" not in timed:
            return None
        timed = timed[timed[f"param.{name}"] == value]
    if timed.empty:
        return None
    fastest = timed.iloc[0]
    config = {name: fastest[f"param.{name}"] for name, _ in sweep["axes"]}
    return Bar(step.name, step.kernel, fastest["median_us"], config, sweep)


def tabulate(bars: Sequence[Bar]) -> pd.DataFrame:
    """Returns a table with one row per bar. `worth` is the change of the time since the previous step."""
    rows, before = [], None
    deepgemm = next((bar.time_us for bar in bars if bar.implementation == BASELINES[0]), None)
    for bar in bars:
        own = not bar.is_baseline
        rows.append(
            {
                "step": bar.name,
                "time": time_text(bar.time_us),
                "worth": change_text(bar.time_us / before - 1) if own and before else "",
                "DeepGEMM's time / its": f"{deepgemm / bar.time_us:.2f}" if deepgemm else "",
                "kernel": bar.implementation,
                "config": config_text(bar.config) if own else "",
            }
        )
        before = bar.time_us if own else before
    return pd.DataFrame(rows)


def draw(bars: Sequence[Bar]) -> go.Figure:
    """Draws one bar per step from top to bottom, then one bar per baseline."""
    figure = go.Figure()
    figure.add_bar(
        y=[bar.name for bar in bars],
        x=[bar.time_us for bar in bars],
        orientation="h",
        marker={
            "color": [
                colours.colour_of(bar.implementation, "baseline" if bar.is_baseline else "kernel") for bar in bars
            ],
            "pattern": {"shape": ["/" if bar.is_baseline else "" for bar in bars]},
        },
        text=[time_text(bar.time_us) for bar in bars],
        textposition="outside",
        cliponaxis=False,
        customdata=list(range(len(bars))),
        hovertext=["" if bar.is_baseline else plain_html(config_text(bar.config)) for bar in bars],
        hovertemplate="%{y}: %{text}<br>%{hovertext}<extra></extra>",
    )
    figure.update_layout(
        height=80 + 46 * len(bars),
        margin={"t": 10, "b": 10, "l": 10, "r": 70},
        xaxis={"title": "time, us", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True},
        showlegend=False,
    )
    return figure
