"""Measures in a real browser how long one person waits for a page to open and for changes in an open page."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

PLOT = ".js-plotly-plot .main-svg, table.series td a"
PLOT_OR_TABLE = f'{PLOT}, [data-testid="stDataFrame"] canvas'
SHOWN = "first => !document.body.dataset.moving && document.querySelector(first)"
"""Script that returns true once `first` is on the page and the page stands still. Our pages hide the first screen until
then; a bare page of Streamlit does not."""
PATIENCE_MS = 60_000
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
"""Options for Chromium: containers forbid its own sandbox, and it would look for updates."""

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
"""Browsers to look for. The first that is found is used, so that one machine always measures the same browser. CI
installs the second."""


def find_browser() -> str | None:
    """Returns the path of a browser; None if there is none on PATH."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


def opened(browser: Browser, view: str) -> tuple[float, int]:
    """Returns the seconds until the first plot or table is drawn in a new session, and the bytes that were received by
    then."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    sent = [0]

    def count(payload: str | bytes) -> None:
        sent[0] += len(payload)

    page.on("websocket", lambda socket: socket.on("framereceived", count))
    page.on("response", lambda response: count(b"0" * int(response.headers.get("content-length", "0"))))
    started = time.perf_counter()
    page.goto(view)
    # Tested in every frame: a waiting locator may look only every half second, and would report the time too late.
    page.wait_for_function(SHOWN, arg=PLOT_OR_TABLE, timeout=PATIENCE_MS)
    took_s = time.perf_counter() - started
    context.close()
    return took_s, sent[0]


def open_again(browser: Browser, views: Mapping[str, str], repeats: int) -> dict[str, list[float]]:
    """Returns, for each view, the seconds until its first plot or table is shown to somebody who was there before. The
    views take turns, so that other work on the machine slows all of them."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    took: dict[str, list[float]] = {name: [] for name in views}
    for turn in range(repeats + 1):
        for name, view in views.items():
            started = time.perf_counter()
            page.goto(view)
            page.wait_for_function(SHOWN, arg=PLOT_OR_TABLE, timeout=PATIENCE_MS)
            if turn:  # the first fills the caches
                took[name].append(time.perf_counter() - started)
            page.wait_for_timeout(1_500)
    context.close()
    return took


def inside(browser: Browser, address: str, repeats: int) -> Iterator[tuple[str, list[float]]]:
    """Yields names of clicks, each with the seconds from a click to the new plot, in a session that has been open for a
    while."""
    context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    yield "Series: another problem to its plot", _problems(page, repeats)
    yield "page switch: Series to Compare", _switches(page, repeats)
    yield "page switch: Overview to Series", _first_switches(browser, address, repeats)
    yield from _wide_sweep(page, repeats).items()
    yield "Compare: another commit, 488 series", _commits(page, repeats)
    context.close()


def _problems(page: Page, repeats: int) -> list[float]:
    page.goto("/series")
    _drawn(page)
    took = []
    for place in range(1, repeats + 1):
        page.get_by_role("combobox", name="Problem").click()
        option = page.get_by_role("option").nth(place % 9 + 1)
        option.wait_for()
        took.append(_until_other_plot(page, option.click))
    return took


def _switches(page: Page, repeats: int) -> list[float]:
    took = []
    for _ in range(repeats):
        page.goto("/series")
        _drawn(page)
        took.append(_until_other_plot(page, page.get_by_role("link", name="Compare").first.click))
        page.get_by_text("on both sides, in").wait_for()
    return took


def _first_switches(browser: Browser, address: str, repeats: int) -> list[float]:
    """Measures switches from a page without a Plotly plot, each in a new session."""
    took = []
    for _ in range(repeats):
        context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 1000})
        page = context.new_page()
        page.goto("/")
        _drawn(page)
        took.append(_until_other_plot(page, page.get_by_role("link", name="Series").first.click))
        context.close()
    return took


def _wide_sweep(page: Page, repeats: int) -> dict[str, list[float]]:
    """Measures the seconds until the heatmap shows the other space, and the seconds until the slowest of its charts is
    drawn too."""
    took: dict[str, list[float]] = {
        "Series: to the heatmap of 500 configs": [],
        "Series: to its parallel coordinates": [],
    }
    for _ in range(repeats):
        page.goto("/series?gpu=h200&problem=320x32576x7168")
        page.get_by_text("54 configs of the space").wait_for()
        _drawn(page)
        page.get_by_role("combobox", name="Kernel").click()
        option = page.get_by_role("option", name="gemm_fp8_hinted")
        option.wait_for()
        heatmap_s = _until_other_plot(page, option.click, "heatmap")
        started = time.perf_counter()
        page.wait_for_function("document.querySelectorAll('.parallel polyline').length > 54")
        page.get_by_text("500 configs of the space").wait_for()
        first, last = took.values()
        first.append(heatmap_s)
        last.append(heatmap_s + time.perf_counter() - started)
    return took


def _commits(page: Page, repeats: int) -> list[float]:
    page.goto("/compare")
    _drawn(page)
    took = []
    for place in range(1, repeats + 1):
        page.get_by_role("combobox", name="B", exact=True).click()
        option = page.get_by_role("option").nth(place + 1)
        option.wait_for()
        took.append(_until_other_plot(page, option.click))
    return took


def _drawn(page: Page) -> None:
    page.locator(PLOT).first.wait_for(state="attached")
    page.wait_for_timeout(1_500)  # for the rest of the page, so that it is at rest when it is clicked


def _until_other_plot(page: Page, act: Callable[[], Any], kind: str = "") -> float:
    """Returns the seconds from the click until the data of the first plot (of type `kind`, if given) differ, as Plotly
    has decoded them. All traces are compared, because a baseline's ratio to itself is 1 for every problem.

    The browser's own clock is used: a script that clicks spends 40 ms first to check whether its target is at rest."""
    shown = f"""(() => {{
        const drawn = {_traces(kind)}[0];
        const first = values => Array.from(values ?? []).slice(0, 20);
        return drawn ? JSON.stringify(drawn.map(trace => [first(trace.x), first(trace.y), first(trace.z)])) : '';
    }})()"""
    before = page.evaluate(shown)
    page.evaluate(
        "addEventListener('pointerdown', press => { pressedMs = press.timeStamp }, { once: true, capture: true })"
    )
    act()
    taken_ms = f"before => {{ const now = {shown}; return now && now !== before && performance.now() - pressedMs; }}"
    return float(page.wait_for_function(taken_ms, arg=before).json_value()) / 1000


def _traces(kind: str) -> str:
    """Returns a script that lists the traces of each plot on the page, only those of type `kind` if that is given."""
    plots = "Array.from(document.querySelectorAll('.js-plotly-plot')).map(plot => plot._fullData ?? [])"
    kept = f"traces => traces.filter(trace => '{kind}' === '' || trace.type === '{kind}')"
    return f"{plots}.map({kept}).filter(traces => traces.length)"
