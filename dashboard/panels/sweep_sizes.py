"""Shows the rates of a kernel and its baselines over all of its problems at the commit of one sweep."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import sizes
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import plots, tables


def show(url: str, sweep: pd.Series) -> None:
    rows = reads.sizes(url, sweep["repository"], sweep["kernel"], sweep["gpu_model"], sweep["sha"])
    if rows.empty:
        st.info("No problem of this kernel is measured at this commit. Pick another one on the slider.")
        return
    rated = sizes.rate_sizes(rows)
    unit = rated["unit"].iloc[0]
    plots.show(sizes.sizes(rated), "sizes", f"{unit} of {sweep['kernel']} over its problems")
    machines = sorted(set(rated["origin"] + " on " + rated["machine"]))
    st.caption(
        f"Medians of careful runs with their 95 % interval, the newest of each problem at this commit; "
        f"{', '.join(machines)}."
    )
    table = sizes.rate_table(rated)
    numbers = {name: st.column_config.NumberColumn(format="%.0f") for name in table.columns[1:]}
    tables.show(table, key="rates", column_config=numbers)
