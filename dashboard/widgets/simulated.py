"""Shows a note on results of a simulated GPU, because their times are made up."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges


def mark(url: str, repository: str) -> None:
    """Shows a note if a repository's newest runs are simulated. Other repositories of this database may be real."""
    if reads.has_simulated_runs(url, repository):
        st.markdown(f":{badges.UNSURE}-badge[simulated] No GPU measured the newest numbers.")
