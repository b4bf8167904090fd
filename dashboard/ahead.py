"""Tells a browser with the page what the charts will need, so that it comes while the page itself still loads.

Streamlit's page asks for its chart module, half of all its bytes, only when the first chart has arrived. Named in the
page's headers it is there by then: the first plot came 0.4 s sooner of 2.75 s (docs/measurements.md).
"""

import re
from pathlib import Path

import streamlit
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE = Path(streamlit.__file__).parent / "static" / "index.html"
CHARTS = "PlotlyChart.*.js"
IMPORTED = re.compile(r'(?:from|import)\s*"\./([^"]+\.js)"')
"""A module's imports, as Streamlit's bundler writes them."""


class Ahead:
    """ASGI middleware: a `Link` header beside every page of HTML."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._link = ", ".join(f"<./static/js/{name}>; rel=modulepreload; crossorigin" for name in chart_modules(PAGE))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if self._link and headers.get("content-type", "").startswith("text/html"):
                    headers.append("link", self._link)
            await send(message)

        await self._app(scope, receive, passed)


def chart_modules(page: Path) -> tuple[str, ...]:
    """The modules that a chart needs and the page does not name itself; none in a Streamlit that is built otherwise."""
    folder = page.parent / "static" / "js"
    named = page.read_text(encoding="utf-8")
    wanted = [path.name for path in folder.glob(CHARTS)]
    for name in wanted:  # grows while it is read: what a module imports may import more
        imports = IMPORTED.findall((folder / name).read_text(encoding="utf-8"))
        wanted += [each for each in dict.fromkeys(imports) if each not in wanted and each not in named]
    return tuple(wanted)
