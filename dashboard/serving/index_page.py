"""Makes the HTML that a browser loads first, and sets the headers of every response.

The HTML contains the server's address. Without the address, Streamlit's script would first look in the wrong place,
which costs a 404 and a round trip. The HTML also names scripts that the page needs soon, so that they load early.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE = Path(__file__).parents[1]
LOGO = HERE / "logo.svg"
STYLE = "".join(
    (HERE / name).read_text(encoding="utf-8")
    for name in ("serving/page.css", "charts/grid.css", "charts/scoreboard.css", "charts/picture.css")
)
"""The style of all pages. It is in the HTML, so that no element moves when the style loads. It is in the body, because
Streamlit's script adds rules to the head, and of two equally specific rules the later one applies."""
INDEX = Path(st.__file__).parent / "static" / "index.html"
PAGES = ("", *sorted(file.stem for file in (HERE / "views").glob("[a-z]*.py") if file.stem != "overview"))
"""The paths of the pages below the dashboard's address."""


OLD_PAGES = {"trends": "", "sweeps": "", "evidence": "This run"}
"""The pages of addresses from before 2026-11-28, which old mails contain, with their view on the page Series."""

HEADERS = {
    "Content-Security-Policy": "img-src 'self' data: blob:; frame-ancestors 'self'; object-src 'none'; base-uri 'self'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that forbid pictures from other sites, and forbid other sites to show a page in a frame. The schemes data:
and blob: are allowed, because they save plots."""

METRICS = "/_stcore/metrics"
"""The path of Streamlit's own metrics. No setting disables this path, and visitors who did not sign in may read it."""

ABOVE = ("StreamlitMarkdown", "Html", "Button", "ButtonGroup", "Checkbox", "Selectbox", "PageLink")
"""The names of Streamlit's scripts for the elements above the first table of a page."""
OVERVIEW_TABLE = "BidiComponent"
"""The name of Streamlit's script for the Overview's first table. The list of Regressions also begins with a table, but
loading its script early gained nothing (2 cores, 2026-11-24)."""

SERVER = "<script>window.__streamlit = {BACKEND_BASE_URL: new URL('.', location.href).href};</script>"
SCRIPTS_FOLDER = Path(st.__file__).parent / "static" / "static" / "js"
IMPORTED = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')


def find_script(name: str) -> str | None:
    """Returns a script's file name; None if this Streamlit has no such file."""
    return next((path.name for path in SCRIPTS_FOLDER.glob(f"{name}.*.js")), None)


def list_scripts(names: Iterable[str]) -> list[str]:
    """Lists the files of these scripts and of everything that they import."""
    needed: dict[str, None] = {}
    waiting = [file for file in map(find_script, names) if file]
    while waiting:
        file = waiting.pop()
        if file not in needed:
            needed[file] = None
            waiting += IMPORTED.findall((SCRIPTS_FOLDER / file).read_text(encoding="utf-8"))
    return list(needed)


PLOTLY = find_script("PlotlyChart")
"""The file of Streamlit's script for Plotly's figures, which settle.js loads."""
SCRIPTS = "".join(
    f'<script type="module" data-plotly="{PLOTLY}">{(HERE / "serving" / name).read_text(encoding="utf-8")}</script>'
    for name in ("history.js", "settle.js", "zoom.js")
)
LOADING = '<p style="font: 1rem sans-serif; color: #6b7686; margin: 4rem" role="status">Tilewatch is loading ...</p>'


def list_routes() -> list[Route]:
    """Returns redirects for old addresses and, if there is no URL prefix, the routes of all pages."""
    prefix = str(st.get_option("server.baseUrlPath") or "").strip("/")
    old = [Route(f"/{prefix}/{name}".replace("//", "/"), _redirect(view)) for name, view in OLD_PAGES.items()]
    if prefix:
        return old  # Streamlit serves the pages
    html = INDEX.read_text(encoding="utf-8")

    def answer(page: str) -> Callable[[Request], HTMLResponse]:
        written = write_html(html, page)
        return lambda _: HTMLResponse(written, headers={"Cache-Control": "no-cache"})

    return [*old, *(Route(f"/{page}", answer(page)) for page in PAGES)]


def _redirect(view: str) -> Callable[[Request], RedirectResponse]:
    """Returns a handler that redirects an old address to a view of the page Series."""

    def answer(request: Request) -> RedirectResponse:
        given = request.query_params.multi_items()
        return RedirectResponse(f"series?{urlencode([*given, ('view', view)] if view else given)}")

    return answer


class Guard:
    """Middleware that adds HEADERS to every response and answers requests for METRICS with 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http" and scope["path"].endswith(METRICS):
            await Response(status_code=404)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)


def write_html(html: str, page: str) -> str:
    """Returns Streamlit's HTML with our title, style and scripts for a page."""
    early = "".join(
        f'<link rel="modulepreload" crossorigin href="./static/js/{file}">'
        for file in list_scripts(ABOVE if page else (*ABOVE, OVERVIEW_TABLE))
        if file not in html
    )
    for old, new in (
        ("<title>Streamlit</title>", f"<title>Tilewatch</title>{SERVER}"),
        ("</head>", f"{early}</head>"),
        ('<div id="root"></div>', f'<style>{STYLE}</style><div id="root">{LOADING}</div>{SCRIPTS}'),
    ):
        html = html.replace(old, new)
    return html
