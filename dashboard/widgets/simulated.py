"""Marks results of a simulated GPU, because their numbers are made up."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges


def mark(url: str, repository: str) -> None:
    """Shows a mark if a repository's newest runs are simulated. Other repositories of the same database may be real."""
    if reads.has_simulated_runs(url, repository):
        st.markdown(f":{badges.UNSURE}-badge[simulated] No GPU measured the newest numbers.")
