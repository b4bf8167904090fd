"""Shows the problems that a weighted total adds up, each with its share of the total and its own verdict."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from tilewatch.dashboard.widgets import address, tables
from tilewatch.db.page_reads.evidence import PartRow
from tilewatch.text import change_text, count_text


def show(parts: Sequence[PartRow]) -> None:
    """Shows a table of the problems of a weighted total. Selecting a row opens the run of that problem."""
    st.subheader("The parts of this total", anchor=False)
    picked = tables.pick_row(parts_table(parts), pd.DataFrame({"run_id": [part.run_id for part in parts]}), "parts")
    st.caption(
        f"{count_text(len(parts), 'problem')}, each as often as the model runs it in one step. Replays are of the "
        "parts: the total changes by what they changed. A selected part opens its evidence."
    )
    if picked is not None:
        address.open_page("views/series.py", {"run": picked["run_id"]})


def parts_table(parts: Sequence[PartRow]) -> pd.DataFrame:
    """Returns a table of the problems of a total. A time is that of all uses of the problem in a step of the model."""
    times_us = [part.weight * part.median_us for part in parts]
    return pd.DataFrame(
        {
            "problem": [f"{part.kernel} {part.problem}" for part in parts],
            "runs": [f"{part.weight:g}" for part in parts],
            "time us": [f"{time_us:,.1f}" for time_us in times_us],
            "share": [f"{time_us / sum(times_us):.0%}" for time_us in times_us],
            "verdict": [part.verdict or "" for part in parts],
            "change": [change_text(part.change) if part.change is not None else "" for part in parts],
        }
    )
