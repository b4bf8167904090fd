"""A branch that was submitted by hand, beside the main line of its repository; and the form of many repositories."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import servers, small_database
from tests.dashboard.fixtures.drawn import await_all_drawn
from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM, REPOSITORY
from tilewatch.db import session
from tilewatch.db.lifecycle import repositories
from tilewatch.db.page_reads import actions, series
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.server.free_ports import find_free_port

APP = Path(__file__).parents[3] / "dashboard" / "app.py"
BRANCH = "faster-loads"


@pytest.fixture(scope="module")
def branch_url(new_filled_database: NewDatabase) -> Iterator[str]:
    with new_filled_database() as url:
        with session.session(url) as opened:
            small_database.add_branch(opened, BRANCH, 0.9)
        yield url


@pytest.fixture(scope="module")
def address(branch_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.dashboard(branch_url, tmp_path_factory.mktemp("elsewhere"), find_free_port(), {}) as served:
        yield served


def test_the_branches_of_a_series_are_those_of_its_repository(branch_url: str) -> None:
    with session.session(branch_url) as opened:
        small_database.add_branch(opened, "other", 0.8)
        names = [name_of_branch(REPOSITORY, name) for name in ("other", BRANCH)]
        assert series.list_branches(opened, REPOSITORY, KERNEL, PROBLEM, "h200", 5) == names
        assert series.list_branches(opened, REPOSITORY, KERNEL, PROBLEM, "h200", 1) == names[:1]
        assert series.list_branches(opened, REPOSITORY, KERNEL, PROBLEM, "b200", 5) == []
        assert series.list_branches(opened, REPOSITORY[:-1], KERNEL, PROBLEM, "h200", 5) == []
        assert series.list_repositories(opened) == [REPOSITORY, *reversed(names)]
        opened.rollback()


@pytest.mark.browser
def test_a_branch_is_drawn_beside_the_main_line_and_leads_to_its_run(page: Any) -> None:
    page.goto("/series")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    page.locator(".legendtext").get_by_text(f"branch {BRANCH}").wait_for()
    page.get_by_text("hexagons are of branches and other toolchains, which count for no verdict").wait_for()
    page.get_by_text("driver 580.82 → 590.11", exact=True).wait_for()
    drawn = """() => [...document.querySelector('.js-plotly-plot').data].map(
        trace => [trace.name, trace.x.length, trace.marker.symbol])"""
    traces = {name: (points, symbol) for name, points, symbol in page.evaluate(drawn) if name}
    assert traces[f"branch {BRANCH}"] == (1, "hexagon2-open")
    assert traces[KERNEL][0] == 3, "the main line has its own commits"
    index = page.evaluate(
        f"() => document.querySelector('.js-plotly-plot').data.findIndex(t => t.name === 'branch {BRANCH}')"
    )
    await_all_drawn(page)
    page.locator(".scatterlayer .trace").nth(index).locator(".point").first.click(force=True)
    page.wait_for_url("**/series?*run=*")
    page.get_by_role("heading", name="Try four stages").wait_for()
    page.locator(".legendtext").get_by_text(f"branch {BRANCH}").first.wait_for()


@pytest.mark.browser
def test_the_tabs_lead_to_the_repository_of_the_address(page: Any) -> None:
    """Each tab led to the first repository, and the choice had to be made anew."""
    name = name_of_branch(REPOSITORY, BRANCH)
    asked = f"?{urlencode({'repository': name})}"
    page.goto("/")
    for title, path in (("Series", "series"), ("Compare", "compare")):
        page.get_by_test_id("stTopNavLink").get_by_text(title, exact=True).click()
        page.wait_for_url(f"**/{path}")
    page.goto(f"/{asked}")
    for title, path in (("Inbox", "inbox"), ("Series", "series"), ("Compare", "compare"), ("Overview", "")):
        page.get_by_test_id("stTopNavLink").get_by_text(title, exact=True).click()
        page.wait_for_url(f"**/{path}{asked}")
        expect(page).to_have_title(f"{title} - Tilewatch")
        if path != "inbox":
            expect(page.get_by_role("combobox", name="Repository")).to_have_value(name)
    for path in ("compare", "series", "inbox", ""):
        page.go_back()
        page.wait_for_url(f"**/{path}{asked}")


def test_the_form_submits_for_the_picked_repository(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        with session.session(url) as opened:
            repositories.add(opened, "mine", "https://example.org/mine.git", "main")
            repositories.add(opened, "gone", "https://example.org/gone.git", "main")
            repositories.add(opened, REPOSITORY, REPOSITORY, "main")
            repositories.remove(opened, "gone")
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
        app = AppTest.from_file(str(APP), default_timeout=60).switch_page("views/jobs.py").run()
        app.text_input(key="who").set_value("kim").run()
        picked = app.selectbox(key="submit-repository")
        assert picked.options == ["mine", REPOSITORY, "that of TILEWATCH_REPOSITORY"]
        for name, gpus in (("mine", []), (REPOSITORY, ["b200", "h200"]), ("that of TILEWATCH_REPOSITORY", None)):
            app.selectbox(key="submit-repository").set_value(name).run()
            assert gpus is None or app.multiselect(key="submit-gpus").options == gpus
            app.button(key="submit-now").click().run()
            assert not app.exception
        with session.session(url) as opened:
            asked = [row.wanted.get("repository") for row in actions.list_actions(opened) if row.action == "nightly"]
        assert asked == [None, REPOSITORY, "mine"]
