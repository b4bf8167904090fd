"""Draws the raw times of a run and of a replay, the GPU's clock and power, and the roofline."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.axes import LOG_NUMBERS
from tilewatch.dashboard.frames.explanation import RooflinePoint
from tilewatch.dashboard.frames.metrics import US_TFLOP
from tilewatch.dashboard.text import count_decimals
from tilewatch.db.page_reads.evidence import SamplesRow
from tilewatch.text import plain_html

BEFORE_COLOUR = "#9aa5b4"
CLOCK_COLOUR, POWER_COLOUR = colours.OTHERS[3], colours.OTHERS[2]
BINS = 40
FEW_TICKS = {"tickmode": "auto", "nticks": 5}
TFLOP_GB = 1e3
"""The number of GB/s in one TB/s. With one FLOP per byte, a bandwidth of one TB/s allows one TFLOP/s."""


def samples(sampled: Sequence[SamplesRow]) -> go.Figure:
    """Draws each implementation's times by sample number. Crosses are times of a throttled GPU."""
    figure = go.Figure()
    for row in sampled:
        figure.add_scatter(
            x=list(range(1, len(row.samples_us) + 1)),
            y=row.samples_us,
            name=plain_html(row.implementation),
            mode="markers+lines",
            marker={"size": 5, "color": colours.colour_of(row.implementation, row.role)},
            line={"width": 1, "color": colours.colour_of(row.implementation, row.role)},
            hovertemplate="round %{x}: %{y:,.2f} us",
        )
        if row.throttled_us:
            first = len(row.samples_us) + 1
            figure.add_scatter(
                x=list(range(first, first + len(row.throttled_us))),
                y=row.throttled_us,
                name=plain_html(f"{row.implementation}, throttled"),
                mode="markers",
                marker={"size": 5, "symbol": "x", "color": colours.UNCERTAIN},
                hovertemplate="throttled, left out: %{y:,.2f} us",
            )
    figure.update_layout(**_layout("paired round", "time, us"), hovermode="x unified")
    return figure


def distribution(now: SamplesRow, before: SamplesRow | None) -> go.Figure:
    """Draws a histogram of the kernel's times, and of the earlier run's times if there is an earlier run."""
    figure = go.Figure()
    for row, name, colour in (
        (before, "before", BEFORE_COLOUR),
        (now, "this run", colours.colour_of(now.implementation, now.role)),
    ):
        if row is not None:
            figure.add_histogram(
                x=row.samples_us,
                nbinsx=BINS,
                name=f"{name}, {len(row.samples_us)} samples",
                histnorm="percent",
                marker={"color": colour},
                opacity=0.7,
                hovertemplate="%{x} us: %{y:.0f} %",
            )
            figure.add_vline(x=row.median_us, line={"color": colour, "width": 2, "dash": "dash"})
    figure.update_layout(**_layout("time, us (dashed: medians)", "% of samples"), barmode="overlay")
    return figure


def _compared(old_us: float, new_us: float) -> str:
    if new_us == old_us:
        return colours.UNCERTAIN
    return colours.WORSE if new_us > old_us else colours.BETTER


def replay(old_us: Sequence[float], new_us: Sequence[float]) -> go.Figure:
    """Draws a line for each launch of a replay, from the old cubin's time to the new cubin's time."""
    figure = go.Figure()
    for good_us, bad_us in zip(old_us, new_us, strict=True):
        figure.add_scatter(
            x=["old cubin", "new cubin"],
            y=[good_us, bad_us],
            mode="lines+markers",
            line={"color": _compared(good_us, bad_us), "width": 1.2},
            marker={"size": 8, "color": [BEFORE_COLOUR, colours.KERNEL]},
            hovertemplate="%{x}: %{y:,.2f} us, one launch<extra></extra>",
            showlegend=False,
        )
    figure.update_layout(**_layout("", "median of a launch, us"))
    return figure


def telemetry(readings: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Draws the GPU's clock in MHz and its power in W over the seconds since the first reading."""
    readings = [reading for reading in readings if reading.get("sm_clock_mhz") is not None]
    first_s = readings[0]["unix_s"] if readings else 0.0
    at = [reading["unix_s"] - first_s for reading in readings]
    details = [
        plain_html(
            f"{reading['when']}, {reading.get('temperature_c')} C"
            + (f", throttled: {', '.join(reading['throttled'])}" if reading.get("throttled") else "")
        )
        for reading in readings
    ]
    figure = go.Figure()
    for reading_name, name, unit, colour, axis in (
        ("sm_clock_mhz", "SM clock", "MHz", CLOCK_COLOUR, "y"),
        ("power_w", "power", "W", POWER_COLOUR, "y2"),
    ):
        figure.add_scatter(
            x=at,
            y=[reading.get(reading_name) for reading in readings],
            name=name,
            yaxis=axis,
            mode="lines+markers",
            marker={"color": colour, "size": 6},
            line={"color": colour, "width": 1.5},
            customdata=details,
            hovertemplate=f"%{{y:,.0f}} {unit}, %{{customdata}}",
        )
    figure.update_layout(
        **_layout("s since the first reading", "SM clock, MHz"),
        yaxis2={"title": "power, W", "overlaying": "y", "side": "right", "showgrid": False, **FEW_TICKS},
    )
    return figure


def roofline(points: Sequence[RooflinePoint], tflops: float | None, bandwidth_gbps: float | None) -> go.Figure:
    """Draws the throughput of each point over its operations per byte, with the datasheet's limits if known."""
    figure = go.Figure()
    intensities = [point.operations / point.moved_bytes for point in points]
    speeds = [point.operations / point.time_us / US_TFLOP for point in points]
    if bandwidth_gbps is not None:
        ridge = [] if tflops is None else [tflops * TFLOP_GB / bandwidth_gbps]
        ends = [min([*ridge, *intensities]) / 2, *ridge, max([*ridge, *intensities]) * 2]
        limits = [each * bandwidth_gbps / TFLOP_GB for each in ends]
        rate = "" if tflops is None else f"{tflops:,.0f} TFLOP/s, "
        figure.add_scatter(
            x=ends,
            y=[limit if tflops is None else min(tflops, limit) for limit in limits],
            name=f"datasheet: {rate}{bandwidth_gbps:,.0f} GB/s",
            mode="lines",
            line={"color": colours.LINE, "width": 1.5},
            hovertemplate="%{y:,.0f} TFLOP/s at %{x:,.0f} operations per byte",
        )
    for point, x, y, symbol in zip(points, intensities, speeds, ("circle-open", "diamond", "circle"), strict=False):
        figure.add_scatter(
            x=[x],
            y=[y],
            name=point.name,
            mode="markers",
            marker={"size": 11, "symbol": symbol, "color": BEFORE_COLOUR if "before" in point.name else colours.KERNEL},
            hovertemplate=f"%{{y:,.{count_decimals([y])}f}} TFLOP/s at %{{x:,.1f}} operations per byte",
        )
    figure.update_layout(**_layout("operations per byte of memory", "TFLOP/s"))
    figure.update_xaxes(**LOG_NUMBERS)
    figure.update_yaxes(**LOG_NUMBERS)
    return figure


def _layout(x: str, y: str) -> dict[str, Any]:
    return {
        "height": 320,
        "margin": {"t": 10, "b": 10, "l": 10, "r": 10},
        "xaxis": {"title": x, "zeroline": False},
        "yaxis": {"title": y, "zeroline": False, "separatethousands": True},
        "legend": {"orientation": "h", "y": -0.25, "x": 0},
    }
