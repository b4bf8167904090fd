"""How every figure reaches a page: its words for screen readers, and what its camera button saves. Draws no figure."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from tilewatch.dashboard import charts, preload
from tilewatch.dashboard.charts import grid, parallel

PICTURE_KEY = "picture"
PNG, SVG = "PNG", "SVG"
SHARP = 2
"""Saved pictures have this many pixels for each on the page, so that they stand printing."""

_PICTURE_STYLE = (Path(charts.__file__).parent / "picture.css").read_text(encoding="utf-8")
_GRID = st.components.v2.component(
    "tilewatch_grid",
    html='<div class="series-grid"></div>',
    css=grid.STYLE + _PICTURE_STYLE,
    js=grid.BEHAVIOUR,
    isolate_styles=False,  # a shadow root is mounted in a second pass, and its text is out of a screen reader's search
)

_PARALLEL = st.components.v2.component(
    "tilewatch_parallel",
    html='<div class="parallel"></div>',
    css=parallel.STYLE + _PICTURE_STYLE,
    js=parallel.BEHAVIOUR,
    isolate_styles=False,
)

_AHEAD = st.components.v2.component(
    "tilewatch_ahead",
    js=(Path(__file__).parent.parent / "preload.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def show(figure: go.Figure, key: str, alt: str, *, bar: bool = True) -> None:
    """Draw it; `alt` says what is on it."""
    st.plotly_chart(figure, key=key, config=_config(key, bar=bar), alt=alt)


def show_clickable(figure: go.Figure, key: str, alt: str) -> list[dict[str, Any]]:
    """Draw it and return the points that were clicked."""
    clicked = st.plotly_chart(figure, key=key, config=_config(key), alt=alt, on_select="rerun", selection_mode="points")
    return [dict(point) for point in clicked.selection.points]


def show_grid(html: str, key: str) -> None:
    """Show a table of grid.py; a click on a cell opens the trend that its link names, within the session."""
    shown = _GRID(key=key, data={"html": html, **_saved_as(key)}, on_opened_change=_noted)
    if shown.opened:
        st.switch_page("views/trends.py", query_params={str(name): str(value) for name, value in shown.opened.items()})


def show_parallel(drawing: dict[str, Any], key: str) -> None:
    """Show what parallel.py has drawn."""
    _PARALLEL(key=key, data={**drawing, **_saved_as(key)})


def choose_picture_format() -> None:
    """What the camera button of every plot saves; a part of the frame around the pages."""
    st.segmented_control("Plots are saved as", [PNG, SVG], default=PNG, required=True, key=PICTURE_KEY)


def load_plotly_early() -> None:
    """Have the browser take up the script of Plotly's figures once this page stands; a part of the frame too.

    From a page without a figure to one with, it took 1.2 s for the most part of this script.
    """
    _AHEAD(key="ahead", data={"modules": preload.modules(preload.PAGE, (preload.CHARTS,))[:1]})


def _config(key: str, *, bar: bool = True) -> dict[str, Any]:
    if not bar:
        return {"displayModeBar": False}
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["select2d", "lasso2d"],
        "toImageButtonOptions": {"format": _picture(), "filename": _file_name(key), "scale": SHARP},
    }


def _picture() -> str:
    return str(st.session_state.get(PICTURE_KEY, PNG)).lower()


def _saved_as(key: str) -> dict[str, str]:
    return {"picture": _picture(), "name": _file_name(key)}


def _file_name(key: str) -> str:
    return f"tilewatch-{key}"


def _noted() -> None:
    """A component reports only what has a listener; the page reads the answer itself."""
