"""Clicks that lead from page to page where there are several repositories, as there are in every first `make up`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import newcomer
from tests.dashboard.fixtures.drawn import await_drawn
from tilewatch.dashboard.serving import index_page

DASHBOARD = Path(__file__).parents[3] / "dashboard"


@pytest.fixture(scope="module")
def address(new_filled_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with newcomer.serve(new_filled_database, tmp_path_factory.mktemp("elsewhere")) as served:
        yield served


def unfold(page: Any) -> None:
    """Unfolds every table of the Overview."""
    page.locator("table.series[data-alive]").first.wait_for()
    for button in page.get_by_role("button", name="Unfold all").all():
        button.click()


@pytest.mark.browser
@pytest.mark.parametrize("repository", newcomer.MEASURED)
def test_a_cell_opens_the_trend_of_its_own_series(page: Any, repository: str) -> None:
    page.goto(f"/?{urlencode({'repository': repository})}")
    cells = page.locator("table.series tbody td a")
    cells.last.wait_for(state="attached")
    unfold(page)
    for cell in (cells.first, cells.last):
        wanted = parse_qs(urlsplit(cell.get_attribute("href")).query)
        assert wanted["repository"] == [repository]
        cell.click()
        page.wait_for_url("**/series?*")
        page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for()
        assert parse_qs(urlsplit(page.url).query) == wanted, "nothing of it is lost"
        (shown,) = (page.get_by_role("combobox", name=name, exact=True) for name in ("Problem",))
        assert shown.input_value() == wanted["problem"][0]
        page.go_back()
        cells.last.wait_for(state="attached")
        unfold(page)


@pytest.mark.browser
def test_a_click_on_a_point_keeps_the_repository_that_is_picked(page: Any) -> None:
    page.goto(f"/series?{urlencode({'repository': newcomer.EXAMPLES})}")
    await_drawn(page)
    page.locator(".js-plotly-plot .scatterlayer .trace .point").first.click(force=True)
    page.wait_for_url("**/series?*run=*")
    assert parse_qs(urlsplit(page.url).query)["repository"] == [newcomer.EXAMPLES]
    assert page.get_by_role("combobox", name="Repository").input_value() == newcomer.EXAMPLES


@pytest.mark.browser
@pytest.mark.parametrize("repository", [*newcomer.MEASURED, newcomer.EMPTY])
def test_every_link_of_every_page_leads_to_a_page(page: Any, repository: str) -> None:
    """Nothing that is clicked ends in a box of an exception, whatever repository is picked; each label once."""
    followed = set()
    for name in index_page.PAGES:
        address = f"/{name}?{urlencode({'repository': repository})}"
        page.goto(address)
        await_drawn(page)
        if not name:
            page.get_by_role("link", name="Open the inbox").wait_for()
        links = page.get_by_test_id("stPageLink-NavLink")
        for label in dict.fromkeys(link.inner_text() for link in links.all()):
            if (name, label) in followed:
                continue
            followed.add((name, label))
            links.filter(has_text=label).first.click()
            await_drawn(page)
            assert page.get_by_test_id("stException").count() == 0, (address, label)
            page.goto(address)
            await_drawn(page)
    assert ("", "Open the inbox") in followed


def test_one_function_opens_pages_and_no_choice_is_bound_by_streamlit() -> None:
    """What Streamlit binds to the address breaks every link with a parameter of that name (widgets/address.py)."""
    texts = {path.relative_to(DASHBOARD).as_posix(): path.read_text() for path in DASHBOARD.rglob("*.py")}
    assert [path for path, text in texts.items() if "switch_page(" in text] == ["widgets/address.py"]
    assert [path for path, text in texts.items() if "bind=" in text] == []
