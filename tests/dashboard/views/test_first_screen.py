"""Every page that has a chart shows it without scrolling, on a desk and on a phone."""

from typing import Any

import pytest

from tests.dashboard.fixtures.drawn import await_all_drawn

pytestmark = pytest.mark.browser

PLOT = ".js-plotly-plot .cartesianlayer"
PAGES = ("series", "compare", "architectures", "regressions?regression=1", "checks?check=1")
SEEN_PX = 50
"""Least part of a chart that is seen without scrolling."""


def find_place(page: Any, address: str) -> tuple[float, float]:
    """Returns where the first chart of a page begins and ends."""
    page.goto(f"/{address}")
    chart = page.locator(PLOT).first
    chart.wait_for(state="attached")
    await_all_drawn(page)
    box = chart.bounding_box()
    return box["y"], box["y"] + box["height"]


@pytest.mark.parametrize("window", [(1440, 900), (400, 800)])
def test_the_chart_of_every_page_begins_on_the_first_screen(page: Any, window: tuple[int, int]) -> None:
    page.set_viewport_size({"width": window[0], "height": window[1]})
    places = {address: find_place(page, address) for address in PAGES}
    assert {address: begin for address, (begin, _) in places.items() if begin + SEEN_PX > window[1]} == {}
    assert places["series"][1] < window[1], "that of a series ends there too"
