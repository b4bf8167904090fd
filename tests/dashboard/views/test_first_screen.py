"""Every page that has a chart shows it without scrolling, on a desk and on a phone."""

from typing import Any

import pytest

from tests.dashboard.fixtures.drawn import await_all_drawn

pytestmark = pytest.mark.browser

CHART = ".js-plotly-plot .cartesianlayer"
SEEN_PX = 50
"""Least part of a chart that is seen without scrolling."""
PAGES = ("series", "compare", "architectures", "regressions?regression=1", "checks?check=1")


def find_begin(page: Any, address: str) -> float:
    """Returns where the first chart of a page begins."""
    page.goto(f"/{address}")
    page.locator(CHART).first.wait_for(state="attached")
    await_all_drawn(page)
    return float(page.locator(CHART).first.bounding_box()["y"])


@pytest.mark.parametrize("window", [(1440, 900), (400, 800)])
def test_the_chart_of_every_page_begins_on_the_first_screen(page: Any, window: tuple[int, int]) -> None:
    page.set_viewport_size({"width": window[0], "height": window[1]})
    begins = {address: find_begin(page, address) for address in PAGES}
    assert {address: at for address, at in begins.items() if at + SEEN_PX > window[1]} == {}
