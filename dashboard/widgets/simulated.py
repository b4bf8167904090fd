"""Marks every page of a database whose newest runs are simulated: its numbers are made up, whatever their names say."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges


def mark_page() -> None:
    if reads.has_simulated_runs(reads.database_url()):
        st.markdown(
            f":{badges.UNSURE}-badge[simulated] No GPU measured the numbers of the newest runs: they are made up."
        )
