"""Tells a browser with the page what its first plot will need, so that it comes while the page itself still loads.

Streamlit's page asks for the module of an element only when the first such element has arrived. Named in the page's
headers it is there by then: the first plot came 0.4 s sooner of 2.75 s (docs/measurements.md).
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import streamlit
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE = Path(streamlit.__file__).parent / "static" / "index.html"
CHARTS, TABLES, OWN = "PlotlyChart.*.js", "DataFrame.*.js", "BidiComponent.*.js"
"""The modules of Plotly's figures, of data frames, and of what is drawn by our own script."""
FIRST = {"regressions": (TABLES,), "jobs": (TABLES,), "overview": (OWN,), "": (OWN,)}
"""What a page begins with, by the last part of its address; figures where this says nothing."""
IMPORTED = re.compile(r'(?:from|import)\s*"\./([^"]+\.js)"')
"""A module's imports, as Streamlit's bundler writes them."""


class Preload:
    """ASGI middleware: a `Link` header beside every page of HTML."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._links = {page: _link(modules(PAGE, first)) for page, first in FIRST.items()}
        self._figures = _link(modules(PAGE, (CHARTS,)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                link = self._links.get(scope["path"].rsplit("/", 1)[-1], self._figures)
                if link and headers.get("content-type", "").startswith("text/html"):
                    headers.append("link", link)
            await send(message)

        await self._app(scope, receive, passed)


@functools.cache
def modules(page: Path, first: Sequence[str]) -> tuple[str, ...]:
    """The modules of some elements that the page does not name itself; none in a Streamlit that is built otherwise."""
    folder = page.parent / "static" / "js"
    named = page.read_text(encoding="utf-8")
    wanted = [path.name for pattern in first for path in folder.glob(pattern)]
    for name in wanted:  # grows while it is read: what a module imports may import more
        imports = IMPORTED.findall((folder / name).read_text(encoding="utf-8"))
        wanted += [each for each in dict.fromkeys(imports) if each not in wanted and each not in named]
    return tuple(wanted)


def _link(names: Sequence[str]) -> str:
    return ", ".join(f"<./static/js/{name}>; rel=modulepreload; crossorigin" for name in names)
