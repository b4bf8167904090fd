"""One series over commits, beside its baselines."""

import pandas as pd
import streamlit as st

from dashboard import charts, colours, data, filters
from dashboard.metrics import Metric
from dashboard.wording import config_text, moment, plural, short, source_text


def page(url: str) -> None:
    st.title("Trends", anchor=False)
    series = data.series(url)
    if series.empty:
        st.info(
            "No series is measured yet. A worker on a machine with an NVIDIA GPU measures what is submitted; without "
            "one, import a recording (`tilewatch import FILE`) or look at the static facts on the Sweeps page."
        )
        st.page_link("views/sweeps.py", label="To the sweeps")
        return
    columns = st.columns(3)
    with columns[0]:
        series = filters.narrow(series, "Kernel", "kernel", "kernel")
    with columns[1]:
        series = filters.narrow(series, "Problem", "problem", "problem")
    with columns[2]:
        names = dict(zip(series["gpu_model"], series["gpu_name"], strict=True))
        gpu_model = filters.pick("GPU", list(names), "gpu", help=", ".join(names.values()))
    metric = filters.metric()
    series_of = series.iloc[0]
    points = data.points(url, series_of["kernel"], series_of["problem"], gpu_model)
    _chart(points, metric)
    _about(points)


def _chart(points: pd.DataFrame, metric: Metric) -> None:
    shown = metric.values(points)["value"].notna()
    if not shown.any():
        missing = "No run measured DeepGEMM" if metric.key == "ratio" else "This GPU model has no datasheet rates"
        st.info(f"{missing} in this series, so there is no {metric.label.lower()} to show. Pick another value above.")
        return
    clicked = st.plotly_chart(
        charts.trend(points, metric),
        key="trend",
        on_select="rerun",
        selection_mode="points",
        config={"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
        alt=f"{metric.label} over {plural(points['sha'].nunique(), 'commit')}",
    )
    runs = [point["customdata"][1] for point in clicked.selection.points if point.get("customdata")]
    if runs:
        st.switch_page("views/evidence.py", query_params={"run": str(runs[0])})


def _about(points: pd.DataFrame) -> None:
    """What the marks mean, and the points as a table."""
    told = ["Points are medians with their 95 % interval, and a click opens the evidence behind one"]
    if (points["origin"] == "recorded").any():
        told.append("open diamonds come from recordings")
    if points["verdict"].isin(list(colours.VERDICTS)).any():
        told.append("rings are verdicts")
    places = {sha: i for i, sha in enumerate(dict.fromkeys(points["sha"]))}
    if any(True for _ in charts.toolchain_changes(points, places)):
        told.append("dashed lines are changes of the toolchain on a machine")
    st.caption(", ".join(told) + ".")
    with st.expander(f"The {plural(len(points), 'measurement')} behind the chart"):
        st.dataframe(
            pd.DataFrame(
                {
                    "commit": [
                        f"{short(sha)} {subject}" for sha, subject in zip(points["sha"], points["subject"], strict=True)
                    ],
                    "implementation": points["implementation"],
                    "median us": points["median_us"],
                    "low us": points["low_us"],
                    "high us": points["high_us"],
                    "samples": points["samples"],
                    "ratio to DeepGEMM": points["ratio"],
                    "verdict": points["verdict"].fillna("").where(points["role"] == "kernel", ""),
                    "config": [config_text(params) if params else "" for params in points["params"]],
                    "source": [
                        source_text(origin, machine, at)
                        for origin, machine, at in zip(
                            points["origin"], points["machine"], points["measured_at"], strict=True
                        )
                    ],
                    "toolchain": [", ".join(f"{k} {v}" for k, v in chain.items()) for chain in points["toolchain"]],
                    "measured": [moment(at) for at in points["measured_at"]],
                }
            ),
            hide_index=True,
            column_config={
                "median us": st.column_config.NumberColumn(format="%.1f"),
                "low us": st.column_config.NumberColumn(format="%.1f"),
                "high us": st.column_config.NumberColumn(format="%.1f"),
                "ratio to DeepGEMM": st.column_config.NumberColumn(format="%.3fx"),
            },
        )


page(data.database_url())
