"""Shows the hardware counters of a run's winner beside those of the previous run's winner, and a roofline from them."""

import streamlit as st

from tilewatch.dashboard.charts import evidence as charts
from tilewatch.dashboard.frames import explanation, metrics
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.widgets import plots, tables
from tilewatch.text import plain


def show(found: Evidence) -> None:
    st.subheader("Hardware counters", anchor=False)
    table = explanation.tabulate_counters(found)
    if table.empty:
        st.caption(plain(explanation.write_counters_source(found)))
        return
    points = explanation.list_roofline_points(found)
    left, right = st.columns([3, 2] if points else [1, 0.01], gap="medium")
    with left:
        tables.show(table, key="counters", height="content")
    if points:
        with right:
            run = found.run
            tflops = metrics.find_rate_tflops(run.rate, run.fp8_tflops, f"{run.kernel} {run.problem}")
            figure = charts.roofline(points, tflops, run.bandwidth_gbps)
            plots.show(figure, "roofline", "Operations per second over operations per byte of memory")
    st.caption(plain(explanation.write_counters_source(found)))
