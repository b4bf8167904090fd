"""Shows GPU times, quarantined GPUs, and canaries: fixed kernels that show whether a GPU is healthy."""

import datetime as dt

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.frames import gpu_time, reads
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import plots, tables
from tilewatch.text import plain, plain_code, plain_html

PALETTE = (colours.KERNEL, *colours.OTHERS)
BEST_OF = 0.05
"""The quantile of a GPU's own canary times that counts as the best time of this GPU."""


def show_quarantined(quarantines: pd.DataFrame) -> None:
    """Shows a sentence for each GPU in quarantine."""
    for row in quarantines[quarantines["ended_at"].isna()].to_dict("records"):
        last = f" Its last canary, {moment(row['canary_at'])}: {row['canary_said']}." if row["canary_said"] else ""
        st.error(
            f"GPU {plain_code(row['gpu_uuid'])} ({plain(row['gpu_model'])}) of {plain(row['host'])} takes no sweeps "
            f"since {moment(row['began_at'])}: {plain(row['reason'] + '.' + last)}"
        )


def show_gpu_time(url: str) -> None:
    """Shows how much GPU time the nightly runs of the last 7 days took."""
    today = dt.datetime.combine(dt.datetime.now(dt.UTC), dt.time(), dt.UTC)  # the answer is kept for the whole day
    found = reads.gpu_times(url, today - dt.timedelta(days=6), today + dt.timedelta(days=1))
    if not found.empty:
        st.subheader("GPU time of the last 7 days", anchor=False)
        tables.show(gpu_time.tabulate(found), key="gpu-time")


def show_health(url: str) -> None:
    canaries, quarantines = reads.canaries(url), reads.quarantines(url)
    if canaries.empty and quarantines.empty:
        return
    st.subheader("Health of the GPUs", anchor=False)
    if len(canaries):
        plots.show(canary_figure(canaries, quarantines), "canaries", "Time of the canaries of each GPU over its best")
        st.caption(
            "Two fixed kernels before and after every job, in percent over that GPU's best. No commit changes "
            "them: when they change, the GPU did. Shaded: in quarantine."
        )
    if len(quarantines):
        tables.show(_table(quarantines), key="quarantines")


def canary_figure(canaries: pd.DataFrame, quarantines: pd.DataFrame) -> go.Figure:
    """Draws each GPU's canary times in percent above its best time. Quarantines are shaded."""
    figure = go.Figure()
    for i, ((uuid, name, host), runs) in enumerate(canaries.groupby(["gpu_uuid", "gpu_name", "host"])):
        for column, words, dash in (("compute_us", "arithmetic", "solid"), ("memory_us", "memory", "dot")):
            best_us = runs[column].quantile(BEST_OF)
            figure.add_scatter(
                x=runs["measured_at"],
                y=100 * (runs[column] / best_us - 1),
                name=plain_html(f"{host} {str(uuid)[-6:]}, {words}"),
                mode="lines+markers",
                marker={"size": 6, "symbol": "circle" if dash == "solid" else "diamond-open"},
                line={"width": 1.5, "dash": dash, "color": PALETTE[i % len(PALETTE)]},
                customdata=[plain_html(f"{name} {uuid}")] * len(runs),
                hovertemplate=f"%{{customdata}}<br>{words}: %{{y:+.2f}} % over its best<extra></extra>",
            )
    for row in quarantines.to_dict("records"):
        ended = row["ended_at"] if not pd.isna(row["ended_at"]) else canaries["measured_at"].max()
        figure.add_vrect(x0=row["began_at"], x1=ended, opacity=0.15, line={"width": 0}, fillcolor=colours.WORSE)
    figure.update_layout(
        height=320,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        yaxis={"title": "% over its best", "zeroline": False, "rangemode": "nonnegative"},
        legend={"orientation": "h", "y": -0.25, "x": 0},
    )
    return figure


def _table(quarantines: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "GPU": f"{row['gpu_model']} {row['gpu_uuid']}",
                "host": row["host"],
                "why": row["reason"],
                "from": moment(row["began_at"]),
                "until": "now" if pd.isna(row["ended_at"]) else moment(row["ended_at"]),
                "canaries": row["canaries"],
                "last canary": row["canary_said"] or "",
            }
            for row in quarantines.to_dict("records")
        ]
    )
