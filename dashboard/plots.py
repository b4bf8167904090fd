"""How every figure reaches a page: its words for screen readers, and what its camera button saves. Draws no figure."""

from typing import Any

import plotly.graph_objects as go
import streamlit as st

PICTURE_KEY = "picture"
PNG, SVG = "PNG", "SVG"
SHARP = 2
"""Saved pictures have this many pixels for each on the page, so that they stand printing."""


def show(figure: go.Figure, key: str, alt: str, *, bar: bool = True) -> None:
    """Draw it; `alt` says what is on it."""
    st.plotly_chart(figure, key=key, config=_config(key, bar=bar), alt=alt)


def picked(figure: go.Figure, key: str, alt: str) -> list[dict[str, Any]]:
    """Draw it and return the points that were clicked."""
    clicked = st.plotly_chart(figure, key=key, config=_config(key), alt=alt, on_select="rerun", selection_mode="points")
    return [dict(point) for point in clicked.selection.points]


def picture_format() -> None:
    """What the camera button of every plot saves; a part of the frame around the pages."""
    st.segmented_control("The camera button of a plot saves", [PNG, SVG], default=PNG, required=True, key=PICTURE_KEY)


def _config(key: str, *, bar: bool = True) -> dict[str, Any]:
    if not bar:
        return {"displayModeBar": False}
    wanted = str(st.session_state.get(PICTURE_KEY, PNG)).lower()
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["select2d", "lasso2d"],
        "toImageButtonOptions": {"format": wanted, "filename": f"tilewatch-{key}", "scale": SHARP},
    }
