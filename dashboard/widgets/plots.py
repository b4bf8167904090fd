"""Shows figures on a page, with descriptions for screen readers and buttons to save pictures."""

import re
import time
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from plotly.basedatatypes import BaseFigure
from streamlit import runtime

from tilewatch.dashboard import charts
from tilewatch.dashboard.charts import grid, parallel, scoreboard
from tilewatch.dashboard.widgets import address

Figure = dict[str, Any]
"""A figure of charts/ as Plotly's JSON."""
PICTURE_KEY = "picture"
DRAWN_KEY = "drawn"
PNG, SVG = "PNG", "SVG"
CLICKED = {"clickmode": "event+select", "dragmode": "pan"}
"""The settings that Streamlit (1.67) adds to a clickable figure. If they are missing, Plotly draws the figure twice."""
SHARP = 2
"""The number of pixels in a saved picture per pixel on the page, which is enough for print."""

_CHARTS = Path(charts.__file__).parent
_PICTURE_STYLE = (_CHARTS / "picture.css").read_text(encoding="utf-8")
# Streamlit mounts a component after the elements below it. So the HTML is sent first; the component adds its script.
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


class _Ready(BaseFigure):  # type: ignore[misc]  # Plotly's has no types
    """A figure that Plotly does not validate, which saves 17 ms for a year of data (2 cores, 2026-11-23)."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def to_dict(self) -> Figure:
        layout = {**self._figure["layout"], "template": _template(), "datarevision": 1}
        return {**self._figure, "layout": layout}


@cache
def _template() -> dict[str, Any]:
    """Returns the template that gives Plotly's figures Streamlit's colours and fonts."""
    return dict(go.Figure().to_dict()["layout"]["template"])


def show(figure: go.Figure, key: str, alt: str, *, bar: bool = True) -> None:
    """Shows a figure, with buttons if `bar` is True. `alt` describes the figure in words."""
    _note_drawn()
    st.plotly_chart(_draw_once(figure), key=f"plot-{key}", config=_config(key, bar=bar), alt=alt)


def show_clickable(figure: go.Figure | Figure, key: str, alt: str, act: Callable[[dict[str, Any]], None]) -> None:
    """Shows a figure. After a click on a point, `act` gets the point."""
    _note_drawn()
    widget_key = f"plot-{key}"

    def act_on_points() -> None:
        for point in st.session_state[widget_key].selection.points:
            act(dict(point))

    st.plotly_chart(
        _draw_once(figure, **CLICKED),
        key=widget_key,
        height=figure["layout"]["height"] if isinstance(figure, dict) else "content",
        config=_config(key),
        alt=alt,
        on_select=act_on_points,
        selection_mode="points",
    )


def show_grid(html: str, key: str) -> None:
    """Shows a table of charts/grid.py. A click on a cell opens the cell's series in this session."""
    _note_drawn()
    data = {**_send("series-grid", key, html), **_saved_as(key)}
    shown = _GRID(key=key, data=data, on_opened_change=lambda: None)  # without a listener the value does not come
    if shown.opened:
        address.open_page("views/series.py", shown.opened)


def show_scoreboard(html: str, key: str) -> None:
    _note_drawn()
    _SCOREBOARD(key=key, data={**_send("scoreboard", key, html), **_saved_as(key)})


def _send(kind: str, key: str, html: str) -> dict[str, Any]:
    """Shows HTML without SVG, which Streamlit removes. Returns the SVG for a script that inserts it again."""
    # A new version makes the script run again even if the drawings are the same.
    version = zlib.crc32(html.encode())
    st.html(f'<div class="{kind}" id="{key}" data-version="{version}">{_SVG.sub(_keep_place, html)}</div>')
    return {"of": key, "drawings": _SVG.findall(html), "version": version}


def _keep_place(drawing: re.Match[str]) -> str:
    """Returns an empty element of a drawing's size, so that nothing moves when the drawing is inserted."""
    named = re.match(r'<svg class="(\w+)"', drawing[0])
    return f'<span class="drawn {named[1] if named else ""}"></span>'


def show_parallel(drawing: dict[str, Any], key: str) -> None:
    _note_drawn()
    _PARALLEL(key=key, data={**drawing, **_saved_as(key)})


def _draw_once(figure: go.Figure | Figure, **layout: str) -> BaseFigure:
    """Returns the figure with a constant `datarevision`, so that Plotly does not draw the figure twice."""
    # The revision can be constant, because Streamlit makes a new element if a figure changes.
    if isinstance(figure, dict):
        return _Ready({**figure, "layout": {**figure["layout"], **layout}})
    return figure.update_layout(datarevision=1, **layout)


def forget_drawn() -> None:
    """Resets the flag that a plot was drawn, before a new page is drawn."""
    st.session_state[DRAWN_KEY] = False
    st.session_state[PICTURE_KEY] = st.session_state.get(PICTURE_KEY, PNG)


def _note_drawn() -> None:
    st.session_state[DRAWN_KEY] = True


def choose_picture_format() -> None:
    """Shows the choice of the format for saved pictures, if the page drew a plot."""
    if st.session_state[DRAWN_KEY]:
        st.segmented_control("Plots are saved as", [PNG, SVG], required=True, key=PICTURE_KEY)


def _config(key: str, *, bar: bool = True) -> dict[str, Any]:
    if not bar:
        return {"displayModeBar": False}
    return {
        "displaylogo": False,
        # "Reset axes" returns to the first view, which may be the part that the address names.
        "modeBarButtonsToRemove": ["select2d", "lasso2d", "resetScale2d"],
        "doubleClick": "autosize",
        "toImageButtonOptions": {"format": _picture(), "filename": f"tilewatch-{key}", "scale": SHARP},
    }


def _picture() -> str:
    return str(st.session_state.get(PICTURE_KEY, PNG)).lower()


def _saved_as(key: str) -> dict[str, str]:
    return {"picture": _picture(), "name": f"tilewatch-{key}"}


DRAWN_S = 0.4
_FIRST_SCREEN_SENT = "first screen sent"


def await_drawing() -> None:
    """Sleeps once per session, so that the browser draws a chart after 0.51 s instead of 0.74 s (2026-11-28)."""
    if runtime.exists() and _FIRST_SCREEN_SENT not in st.session_state:
        st.session_state[_FIRST_SCREEN_SENT] = True
        time.sleep(DRAWN_S)
