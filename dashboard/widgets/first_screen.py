"""Draws the lower part of a page after the browser has shown the first screen."""

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st

COMPONENT, KEY, SHOWN = "tilewatch_first_screen", "first-screen", {"shown": True}
_REPORT = st.components.v2.component(
    COMPONENT, js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"), isolate_styles=False
)


@st.fragment
def draw_below(draw: Callable[[], None], address: Mapping[str, str]) -> None:
    """Draws the part when the first screen is shown, and reserves its place until then. `address` has the page's
    parameters. When a choice in the part has changed them, the whole page runs again."""
    if st.query_params.to_dict() != address:
        st.rerun()
    is_shown = st.session_state.get(KEY) == SHOWN
    with st.container(key="below" if is_shown else "not-drawn-yet"):
        if is_shown:
            draw()
        _REPORT(key=KEY, data=SHOWN if is_shown else None, on_shown_change=lambda: None)
