"""Makes the blocks of a page (headings, texts, tables, charts) from frames and figures."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from tilewatch.dashboard.site.site_content import Block, Cell
from tilewatch.text import one_line

CHART_PX = 400


def heading(text: str) -> Block:
    return Block("heading", one_line(text))


def text(*sentences: str) -> Block:
    return Block("text", " ".join(filter(None, map(one_line, sentences))))


def note(*sentences: str) -> Block:
    return Block("note", " ".join(filter(None, map(one_line, sentences))))


def table(frame: pd.DataFrame, links: Iterable[str | None] = ()) -> Block:
    """Returns a table block. `links` has a page or None for the first cell of each row."""
    pages = list(links) or [None] * len(frame)
    rows = [
        tuple(Cell(_write(value), page if not column else None) for column, value in enumerate(row))
        for row, page in zip(frame.itertuples(index=False), pages, strict=True)
    ]
    return Block("table", columns=tuple(map(one_line, frame.columns)), rows=tuple(rows))


def chart(figure: go.Figure | Mapping[str, Any], words: str) -> Block:
    """Returns a chart block with a description."""
    drawn = figure if isinstance(figure, Mapping) else figure.update_layout(template=None).to_plotly_json()
    height_px = int(drawn["layout"].get("height", CHART_PX))
    compact = json.loads(to_json_plotly(drawn), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    return Block("chart", one_line(words), figure=json.dumps(compact, separators=(",", ":")), height_px=height_px)


def _write(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "" if value is None or pd.isna(value) else one_line(value)
