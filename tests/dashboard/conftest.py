"""An empty database for pages, which only read, and a real browser with a page in it."""

import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.drawn import NOTE_RUNS

PATIENCE_MS = 120_000
WAS_HERE = "if (window.name !== 'first visit') localStorage.setItem('tilewatch-first-visit', 'yes')"
"""The callouts of a first visit have a test of their own, and would lie over what others click."""
NEVER_WAS_HERE = "localStorage.clear(), window.name = 'first visit'"
LIGHT_PAGE = "/_stcore/health"
"""Has the address of the dashboard, and nothing of Streamlit."""
STILL = """
addEventListener('DOMContentLoaded', () => {
    const style = document.createElement('style');
    style.textContent = `*, *::before, *::after {animation: none !important; transition: none !important;}
        [data-stale="true"], [data-stale="true"] * {opacity: 1 !important;}`;
    document.head.append(style);
});
"""
"""What moves or fades is drawn 60 times a second, without a GPU by the CPU: a quarter of a page's CPU time. And half
faded, the contrast of a text would be another."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows: a page that is loaded again takes 2.1 s of CPU time in it, 2.5 in the second (2026-11)."""


@pytest.fixture(scope="session")
def empty_url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on PATH: looked for {', '.join(BROWSERS)}")
    from playwright.sync_api import expect

    from benchmarks import browsing  # Playwright is a dependency of these tests alone

    expect.set_options(timeout=PATIENCE_MS)
    with browsing.chromium(path) as opened:
        yield opened


@pytest.fixture(scope="session")
def visitors(browser: Any) -> Callable[[str], Any]:
    """What a browser keeps of a dashboard, by its address."""

    @functools.cache
    def visit(address: str) -> Any:
        context = browser.new_context(base_url=address, color_scheme="light")
        context.set_default_timeout(PATIENCE_MS)
        for script in (WAS_HERE, STILL, NOTE_RUNS):
            context.add_init_script(script)
        return context

    return visit


@pytest.fixture
def visitor(visitors: Callable[[str], Any], address: str) -> Any:
    """What the browser keeps of `address`, the dashboard of the test's file."""
    return visitors(address)


@pytest.fixture
def page(visitor: Any, address: str) -> Iterator[Any]:
    """A page of somebody who read the callouts of a first visit: without cookies, and with nothing else stored.

    It is one tab for all tests of a dashboard: Streamlit's scripts are compiled once in it, half of a page's CPU time
    (5.3 s of 2 cores with a new tab, 2.6 s in the same one, 2026-11). Whatever a test did there, it shows no stack
    trace, and none of the dashboard's pages asked a stranger for anything.
    """
    opened = visitor.pages[0] if visitor.pages else visitor.new_page()
    opened.set_viewport_size({"width": 1440, "height": 1000})
    strangers: list[str] = []

    def on_request(asked: Any) -> None:
        if _strange(asked, opened, address):
            strangers.append(asked.url)

    opened.on("request", on_request)
    yield opened
    # What went wrong while a page was drawn is a box, and never the text of an exception.
    boxes = opened.locator('[data-testid="stException"], [data-testid="stAlertContentError"]').count()
    text = opened.inner_text("body")
    opened.remove_listener("request", on_request)
    opened.unroute_all()
    opened.goto(LIGHT_PAGE)  # the page is left: it stores nothing any more
    opened.evaluate("localStorage.clear(), sessionStorage.clear(), window.name = ''")
    visitor.clear_cookies()
    assert boxes == 0
    assert "Traceback" not in text
    assert not strangers


def _strange(asked: Any, page: Any, address: str) -> bool:
    """A provider of sign-in has pages of its own, on the way to which and in which anything may be asked."""
    own = (address, address.replace("http", "ws"), "data:", "blob:")
    return page.url.startswith(address) and not asked.is_navigation_request() and not asked.url.startswith(own)
