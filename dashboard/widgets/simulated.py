"""Marks what a simulated GPU measured: its numbers are made up, whatever their names say."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges


def mark(url: str, repository: str) -> None:
    """Marks a repository whose newest runs are simulated; others of the same database are not."""
    if reads.has_simulated_runs(url, repository):
        st.markdown(f":{badges.UNSURE}-badge[simulated] No GPU measured the newest numbers of this repository.")
