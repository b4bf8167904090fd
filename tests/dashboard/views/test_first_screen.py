"""Every page that has a chart shows it without scrolling, on a desk and on a phone, whatever the names above it are."""

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.dashboard.fixtures import newcomer
from tests.dashboard.fixtures.drawn import await_all_drawn
from tilewatch.dashboard.serving import index_page

pytestmark = pytest.mark.browser

CHART = ".js-plotly-plot .nsewdrag, .scoreboard .history"
"""What is drawn between the axes of a chart, and the line of a score."""
WITHOUT = ("inbox", "regressions", "checks")
"""Pages without a chart. One regression and one check have one."""
OF_ONE = ("regressions?regression=1", "checks?check=1")
HOSTILE = urlencode({"repository": newcomer.SIMULATED})
PAGES = (*(f"{name}?{HOSTILE}" for name in index_page.PAGES if name not in WITHOUT), *OF_ONE)
SEEN_PX = 200
"""Least part of a chart that is seen without scrolling. A lower chart is seen as a whole."""


@pytest.fixture
def address(newcomers_address: str) -> str:
    return newcomers_address


def find_place(page: Any, address: str) -> tuple[float, float]:
    """Returns where the first chart of a page begins and ends."""
    page.goto(f"/{address}")
    chart = page.locator(CHART).first
    chart.wait_for(state="attached")
    await_all_drawn(page)
    box = chart.bounding_box()
    return box["y"], box["y"] + box["height"]


@pytest.mark.parametrize("window", [(1440, 900), (400, 800)])
def test_the_chart_of_every_page_is_on_the_first_screen(page: Any, window: tuple[int, int]) -> None:
    page.set_viewport_size({"width": window[0], "height": window[1]})
    places = {address.partition("?repository")[0]: find_place(page, address) for address in PAGES}
    hidden = {name: place for name, place in places.items() if min(place[0] + SEEN_PX, place[1]) > window[1]}
    assert hidden == {}
    assert places["series"][1] < window[1], "that of a series ends there too"
