"""Shows the optimisation guide's checklist for the winner of a run."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from tilewatch.dashboard.frames import checklist
from tilewatch.dashboard.widgets import tables


def show(detail: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Shows nothing for a run that stored no checklist, as of before 2026-11-22."""
    lines = checklist.read_lines(detail)
    if not lines:
        return
    st.subheader("Checklist of the optimisation guide", anchor=False)
    st.caption(f"The winner: {checklist.count_kept(lines)}. What is not kept comes first.")
    tables.show(checklist.tabulate(lines, checklist.read_lines(before or {})), key="checklist", height="content")
