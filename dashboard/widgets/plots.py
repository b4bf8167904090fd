"""Puts every figure on a page, with its words for screen readers and its saved picture. Draws no figure."""

import re
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from plotly.basedatatypes import BaseFigure

from tilewatch.dashboard import charts
from tilewatch.dashboard.charts import grid, parallel, scoreboard
from tilewatch.dashboard.serving import script_files
from tilewatch.dashboard.widgets import address

Figure = dict[str, Any]
"""A figure of charts/ as Plotly's JSON has it."""
PICTURE_KEY = "picture"
DRAWN_KEY = "drawn"
PNG, SVG = "PNG", "SVG"
SHARP = 2
"""Saved pictures have this many pixels for each on the page, enough for print."""

_CHARTS = Path(charts.__file__).parent
_PICTURE_STYLE = (_CHARTS / "picture.css").read_text(encoding="utf-8")
# A component is mounted after what stands below it: what is to be seen is sent as HTML, to which it adds its script.
STYLE = grid.STYLE + scoreboard.STYLE + _PICTURE_STYLE
"""The style of that HTML."""
# A shadow root (isolate_styles) is mounted in a second pass, and a screen reader's search does not see its text.
_GRID = st.components.v2.component("tilewatch_grid", js=grid.BEHAVIOUR, isolate_styles=False)
_PARALLEL = st.components.v2.component(
    "tilewatch_parallel",
    html='<div class="parallel"></div>',
    css=parallel.STYLE + _PICTURE_STYLE,
    js=parallel.BEHAVIOUR,
    isolate_styles=False,
)
_SCOREBOARD = st.components.v2.component("tilewatch_scoreboard", js=scoreboard.BEHAVIOUR, isolate_styles=False)
_SVG = re.compile("<svg.*?</svg>", re.DOTALL)
_PRELOAD = st.components.v2.component(
    "tilewatch_preload", js=(_CHARTS / "preload.js").read_text(encoding="utf-8"), isolate_styles=False
)
_PLOTLY = script_files.find("PlotlyChart")
"""Streamlit's script for Plotly's figures."""


class _Ready(BaseFigure):  # type: ignore[misc]  # Plotly's has no types
    """A figure that is sent as it was made. Plotly checks each value of its own and copies all of them twice: 21 ms of
    CPU for a year of a series, where these are 4 (2 cores, 2026-11-23). Tests check what is drawn."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def to_dict(self) -> Figure:
        layout = {**self._figure["layout"], "template": _template(), "datarevision": 1}
        return {**self._figure, "layout": layout}


@cache
def _template() -> dict[str, Any]:
    """What Plotly's own figures have of Streamlit's theme."""
    return dict(go.Figure().to_dict()["layout"]["template"])


def show(figure: go.Figure, key: str, alt: str, *, bar: bool = True) -> None:
    """Draws it; `alt` says in words what is on it."""
    _note_drawn()
    st.plotly_chart(_draw_once(figure), key=key, config=_config(key, bar=bar), alt=alt)


def show_clickable(
    figure: go.Figure | Figure, key: str, alt: str, act: Callable[[dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Draws it and returns the points that were clicked. `act` is called with such a point before the page is drawn
    again, when it may still set what is picked on it."""
    _note_drawn()

    def act_on_points() -> None:
        assert act is not None, "else the page reads the points itself"
        for point in st.session_state[key].selection.points:
            act(dict(point))

    clicked = st.plotly_chart(
        _draw_once(figure),
        key=key,
        config=_config(key),
        alt=alt,
        on_select=act_on_points if act else "rerun",
        selection_mode="points",
    )
    return [dict(point) for point in clicked.selection.points]


def show_grid(html: str, key: str) -> None:
    """Shows a table of charts/grid.py; a click on a cell opens the series that its link names, within the session."""
    _note_drawn()
    shown = _GRID(key=key, data={**_send("series-grid", key, html), **_saved_as(key)}, on_opened_change=_do_nothing)
    if shown.opened:
        address.open_page("views/series.py", shown.opened)


def show_scoreboard(html: str, key: str) -> None:
    """Shows the cards of charts/scoreboard.py."""
    _note_drawn()
    _SCOREBOARD(key=key, data={**_send("scoreboard", key, html), **_saved_as(key)})


def _send(kind: str, key: str, html: str) -> dict[str, Any]:
    """Sends HTML and returns what the component's script needs: the id of its element, and the drawings, which it puts
    into their places (picture.js), since Streamlit removes SVG from HTML. The version has the script run again where
    only the HTML differs: the browser has a new table then."""
    st.html(f'<div class="{kind}" id="{key}">{_SVG.sub(_keep_place, html)}</div>')
    return {"of": key, "drawings": _SVG.findall(html), "version": zlib.crc32(html.encode())}


def _keep_place(drawing: re.Match[str]) -> str:
    """An element of the same class, which the style gives the drawing's size, so that nothing moves when it comes."""
    named = re.match(r'<svg class="(\w+)"', drawing[0])
    return f'<span class="drawn {named[1] if named else ""}"></span>'


def show_parallel(drawing: dict[str, Any], key: str) -> None:
    """Shows a drawing of charts/parallel.py."""
    _note_drawn()
    _PARALLEL(key=key, data={**drawing, **_saved_as(key)})


def _draw_once(figure: go.Figure | Figure) -> BaseFigure:
    """Streamlit gives Plotly each new figure a second time, as a copy, when it has put its theme on it. Without a
    revision Plotly takes the arrays of the copy for new data, and computes and draws all of it again.

    One revision will do: Streamlit makes a new element where anything of a figure differs.
    """
    if isinstance(figure, dict):
        return _Ready(figure)
    figure.layout.datarevision = 1
    return figure


def forget_drawn() -> None:
    """Begins a page, which has no plot yet, and keeps the choice of a format on pages that do not show it."""
    st.session_state[DRAWN_KEY] = False
    st.session_state[PICTURE_KEY] = st.session_state.get(PICTURE_KEY, PNG)


def _note_drawn() -> None:
    st.session_state[DRAWN_KEY] = True


def choose_picture_format() -> None:
    """Shows the choice of what plots are saved as; below every page that drew one."""
    if not st.session_state[DRAWN_KEY]:
        return
    st.segmented_control("Plots are saved as", [PNG, SVG], required=True, key=PICTURE_KEY)


def load_plotly_early() -> None:
    """Has the browser load Plotly's script once this page is drawn; on every page.

    From a page without a figure to one with, most of 1.2 s went to this script.
    """
    _PRELOAD(key="preload", data={"module": _PLOTLY})


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


def _do_nothing() -> None:
    """A component reports only what has a listener; the page reads the result itself."""
