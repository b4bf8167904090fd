"""Every page of a newcomer in a real browser, light and dark, looked through by axe-core for what hinders people with a
screen reader or weak sight."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.dashboard.fixtures.drawn import await_drawn
from tilewatch.dashboard.serving import index_page

pytestmark = pytest.mark.browser

ONE_OF_MANY = ("regressions?regression=1", "series?run=5&view=This+run", "checks?check=1")
HINDERS = ("serious", "critical")
DARK = "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor === 'rgb(18, 22, 28)'"
DRAWN_IN = {"dark": DARK, "light": DARK.replace("===", "!==")}
ONLY_VIOLATIONS = {"resultTypes": ["violations"], "preload": False, "rules": {"region": {"enabled": False}}}
"""What axe loads beforehand is for rules of sound and of turned screens. That all of a page is in regions would be a
finding of moderate impact, and to ask for it took 7 % of axe's time."""
CONTRAST = {"runOnly": ["color-contrast"]}


BELOW = ("regressions", "architectures")
"""Pages that others lead to, and that are not on the first level."""
MOST_ON_FIRST_LEVEL = 7


@pytest.fixture
def address(newcomers_address: str) -> str:
    return newcomers_address


def list_findings(page: Any, options: dict[str, Any]) -> Iterator[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    for found in page.evaluate("options => axe.run(options)", {**ONLY_VIOLATIONS, **options})["violations"]:
        if found["impact"] in HINDERS:
            for node in found["nodes"]:
                yield f"{page.url}: {found['help']}: {node['html'][:200]}"


def show_pages(page: Any) -> Iterator[None]:
    """Shows them one after the other, as a visitor comes to them: by the links of one page, which is loaded once."""
    page.goto("/")
    links = page.get_by_test_id("stTopNavLink")
    expect(links).to_have_count(len(index_page.PAGES) - len(BELOW))  # not all are measured at once
    shown = {link.get_attribute("href").rpartition("/")[2]: link for link in links.all()}
    assert set(shown) | set(BELOW) == set(index_page.PAGES)
    assert len(shown) <= MOST_ON_FIRST_LEVEL
    for address, link in shown.items():
        if address:
            link.click()
        expect(page).to_have_title(f"{link.text_content()} - Tilewatch")  # hidden until the logo is drawn
        yield
    for address in (*BELOW, *ONE_OF_MANY):
        page.goto(f"/{address}")
        yield


def test_no_page_hinders_who_needs_a_screen_reader_or_contrast(page: Any) -> None:
    """Each page in both colour schemes. The next page comes in the last one's second: a change of scheme draws it all
    again, and only contrast differs by it."""
    findings, first, second = [], "light", "dark"
    for _ in show_pages(page):
        await_drawn(page)
        page.wait_for_function(DRAWN_IN[first])
        findings += list_findings(page, {})
        page.emulate_media(color_scheme=second)
        page.wait_for_function(DRAWN_IN[second])
        findings += list_findings(page, CONTRAST)
        first, second = second, first
    page.emulate_media(color_scheme="light")
    assert findings == []
