"""A newcomer with a hostile repository clicks links, cells, points, buttons, tabs and lists of every page. Each click
leads to a page without an error, no script of others runs, and Back leads to where the visitor was.

The suite draws some of them by a seed. `WALKED_CLICKS=1000 pytest -o faulthandler_timeout=0
tests/dashboard/views/test_walk.py` clicks up to 1,000 from each start: all of them, however long it takes.
"""

import os
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.dashboard.fixtures import newcomer
from tests.dashboard.fixtures.walker import Walker
from tilewatch.dashboard.serving import index_page

pytestmark = pytest.mark.browser

OF_A_REPOSITORY = ("", "series", "compare", "architectures")
VIEWS = ("This run", "What moved", "Over the sizes", "Step by step")
STARTS = (
    *(
        f"/{name}?{urlencode({'repository': repository})}"
        for repository in (*newcomer.MEASURED, newcomer.EMPTY)
        for name in OF_A_REPOSITORY
    ),
    *(f"/series?{urlencode({'repository': newcomer.SIMULATED, 'view': view})}" for view in VIEWS),
    *(f"/{name}" for name in index_page.PAGES if name not in OF_A_REPOSITORY),
    *("/checks?check=1", "/regressions?regression=1"),
)
SEED = 20261128
CLICKS = int(os.environ.get("WALKED_CLICKS", "1"))
"""Most clicks from each start."""


@pytest.fixture
def address(newcomers_address: str) -> str:
    return newcomers_address


def test_whatever_a_newcomer_clicks_leads_to_a_page_and_back(page: Any) -> None:
    walker = Walker(page, SEED)
    for start in STARTS:
        walker.walk(start, CLICKS)
    assert walker.faults == []
    assert len(walker.clicked) > CLICKS * len(STARTS) / 2
