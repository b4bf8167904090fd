"""Nine people's questions, each answered from the Overview in at most three clicks (docs/use/dashboard.md).

A click is a link, a button, a cell or a point; reading and scrolling are none.
"""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import LIGHT_PAGE, NEVER_WAS_HERE
from tests.dashboard.fixtures.drawn import await_all_drawn
from tests.dashboard.fixtures.keyboard import walk_to
from tests.dashboard.fixtures.small_database import SHAS
from tilewatch.db import session
from tilewatch.db.models import Action

pytestmark = pytest.mark.browser

OVERVIEW = "/?since=a+commit&from=5e6f7a8b00"

NAMES = "document.querySelectorAll('.stMarkdown td:first-child')"
"""Names of rows. With too little room, each letter was a line (2026-11-28)."""
RADIOS = "document.querySelectorAll('[role=radio]')"
"""The choices of the filters that show all of them."""


def count_clicks(page: Any) -> None:
    """From now on, until another page is loaded; a page that Streamlit changes to is not."""
    page.evaluate("window.presses = 0, addEventListener('pointerdown', () => { presses += 1 }, true), undefined")


def clicks(page: Any) -> int:
    return int(page.evaluate("presses"))


def test_a_manager_reads_at_once_whether_anything_is_wrong_and_a_newcomer_by_one_click_what_is_shown(page: Any) -> None:
    page.goto("/")
    heading = page.get_by_role("heading", name="2 things need a person: 1 regression, 1 alarm.")
    heading.wait_for()
    top = heading.bounding_box()
    assert top["y"] < 300, "without scrolling"
    page.get_by_role("button", name="What am I looking at?").click()
    page.get_by_text("over 1.00 we are faster").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(
        f"[...{RADIOS}].length && [...{RADIOS}].every(each => each.getBoundingClientRect().right <= 390)"
    )


def test_an_author_finds_by_three_clicks_what_an_earlier_commit_did(page: Any) -> None:
    page.goto("/")
    count_clicks(page)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_text("B: 9c0d1e2f00").wait_for()
    page.get_by_text("0 faster, 1 slower, of 1 series on both sides").wait_for()
    page.get_by_role("combobox", name="B", exact=True).click()
    page.get_by_role("option", name="5e6f7a8b00").click()
    page.get_by_text("B: 5e6f7a8b00 Load B through TMA").wait_for()
    page.get_by_text("0 faster, 0 slower, 1 not judged yet, 1 undecided, of 2 series on both sides").wait_for()
    assert clicks(page) == 3


@pytest.mark.usefixtures("new_regression")
def test_who_is_on_call_reads_an_alert_s_link_on_a_phone_and_acknowledges_by_one_click(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/regressions?regression=1")
    count_clicks(page)
    page.get_by_text("its loads lost TMA").first.wait_for()
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing to push sideways"
    name = page.get_by_role("textbox", name="Your name")
    name.scroll_into_view_if_needed()
    name.fill("kim")
    name.press("Enter")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("acknowledge, → acknowledged").wait_for()
    page.get_by_text("owner kim (not signed in)").wait_for()
    page.get_by_role("button", name="Acknowledge").wait_for(state="detached")
    assert clicks(page) == 1


def test_a_compiler_engineer_lists_the_kernels_that_spill_on_two_architectures_by_three_clicks(page: Any) -> None:
    page.goto("/")
    count_clicks(page)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("link", name="What the compiler made").click()
    page.get_by_role("heading", name="Which kernels spill on sm_100").wait_for()
    page.get_by_text("1 problem of 1 has configs that spill for NVIDIA B200, of 1 kernel.").wait_for()
    page.locator("canvas td", has_text="4 of 15").first.wait_for(state="attached")
    choices = (page.get_by_role(role, name="sm_90 NVIDIA H200") for role in ("radio", "button"))
    next(choices).or_(next(choices)).click()
    page.get_by_role("heading", name="Which kernels spill on sm_90").wait_for()
    page.get_by_text("2 problems of 2 have configs that spill for NVIDIA H200, of 1 kernel.").wait_for()
    page.locator("canvas td", has_text="4096x4096x4096").first.wait_for(state="attached")
    assert clicks(page) == 3


def test_the_author_of_a_baseline_checks_in_two_clicks_how_it_was_measured(page: Any) -> None:
    """And who cannot see colours reads good and bad on the way: from words and shapes."""
    page.goto(OVERVIEW)
    cell = page.get_by_role("link", name="0.83 ▼+9.3%")
    cell.wait_for()
    await_all_drawn(page)  # a page that is drawn again hides a tooltip
    cell.hover()
    tooltip = page.get_by_role("tooltip").filter(has_text="9c0d1e2f00")
    tooltip.filter(has_text="0.83x DeepGEMM (").wait_for()
    session_of_page = page.evaluate("performance.timeOrigin")
    cell.click()
    page.wait_for_url("**/series*")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    assert page.evaluate("performance.timeOrigin") == session_of_page, "within the session, and not a page of its own"
    page.get_by_text("timed with cupti").wait_for()
    page.get_by_role("radio", name="This run").or_(page.get_by_role("button", name="This run")).first.click()
    page.get_by_role("heading", name="Repeat it").wait_for()
    page.locator(".legendtext").get_by_text("deepgemm").first.wait_for()
    page.get_by_role("heading", name="Paired samples").wait_for()
    page.get_by_role("heading", name="Clocks and power").wait_for()


def test_who_reads_that_something_is_slower_sees_the_commit_s_diff_and_its_replay_by_two_clicks(page: Any) -> None:
    page.goto("/")
    page.get_by_role("heading", name="2 things need a person: 1 regression, 1 alarm.").wait_for()
    count_clicks(page)
    page.get_by_role("link", name="Open the inbox").click()
    page.get_by_role("link", name="Open: diff, replay, history").click()
    page.get_by_text("git log --patch 1a2b3c4d00..9c0d1e2f00").wait_for()
    for of_the_code in ("load_view_tko: allow_tma true -> false", "2 x UTMALDG.2D"):
        page.locator("canvas td", has_text=of_the_code).wait_for(state="attached")
    page.get_by_text("5e6f7a8b00 → 9c0d1e2f00: +8.8 % time").first.wait_for()
    replay = page.get_by_role("figure", name="Times of the old and the new cubin by launch")
    replay.locator(".scatterlayer .trace").nth(5).wait_for()
    page.get_by_text(f"tilewatch replay gemm_fp8 320x32576x7168 --of {SHAS[2]} --beside {SHAS[1]}").wait_for()
    assert clicks(page) == 2
    page.set_viewport_size({"width": 800, "height": 1000})
    page.wait_for_function(f"innerWidth === 800 && [...{NAMES}].every(name => name.offsetHeight < 60)")


def test_who_reads_that_a_run_is_undecided_asks_for_its_replay_once(
    page: Any, undecided_run: int, filled_url: str
) -> None:
    page.goto(f"/series?run={undecided_run}")
    page.get_by_text("a replay with more launches decides").wait_for()
    page.get_by_role("button", name="Replay now").click()
    page.get_by_role("textbox", name="Your name").fill("kim")
    page.get_by_role("textbox", name="Your name").press("Enter")
    page.get_by_role("button", name="Ask for a replay").click()
    page.get_by_text("is asked for; a worker queues it within a minute.").wait_for()
    page.get_by_text("the replay in the queue decides").wait_for()
    page.get_by_role("button", name="Replay now").wait_for(state="detached")
    with session.session(filled_url) as opened:
        (asked,) = opened.query(Action).filter(Action.wanted.has_key("run"))
        assert (asked.who, asked.wanted) == ("kim (not signed in)", {"run": undecided_run})


def test_who_has_a_keyboard_alone_comes_from_the_answer_to_a_regression_s_diff_and_to_another_page(page: Any) -> None:
    page.goto("/")
    page.get_by_text("Last nights", exact=True).wait_for()
    page.get_by_role("link", name="Open the inbox").wait_for()
    walk_to(page, "Open the inbox")
    page.keyboard.press("Enter")
    page.wait_for_url("**/inbox")
    page.get_by_text("gemm_fp8 on h200: +9.3 % time, slower").wait_for()
    walk_to(page, "Open: diff, replay, history")
    page.keyboard.press("Enter")
    page.wait_for_url("**/regressions?regression=1")
    page.get_by_role("heading", name="2 commits in range").wait_for()
    walk_to(page, "Series")
    page.keyboard.press("Enter")
    page.wait_for_url("**/series")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()


def test_ctrl_k_finds_a_problem_and_a_regression_from_any_page(page: Any) -> None:
    page.goto("/series")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog").get_by_role("textbox")
    box.wait_for()
    page.wait_for_function("document.activeElement.tagName === 'INPUT'")
    page.keyboard.type("4096x4096 gemm")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="problem gemm_fp8 4096x4096x4096").click()
    page.wait_for_url("**/series?*problem=4096x4096x4096*")
    page.get_by_text("Measurements behind the chart").wait_for()
    page.keyboard.press("Control+k")
    box.fill("regression #1")
    box.press("Enter")
    page.get_by_role("link", name="regression #1 gemm_fp8").click()
    page.wait_for_url("**/regressions?regression=1")


def test_the_callouts_of_a_first_visit_are_five_and_end_for_ever_by_one_click(page: Any) -> None:
    page.goto(LIGHT_PAGE)
    page.evaluate(NEVER_WAS_HERE)
    page.goto("/")
    callout = page.get_by_role("region", name="First visit")
    for number in range(1, 6):
        callout.get_by_text(f"{number} of 5").wait_for()
        expect(page.locator(".first-visit-mark"), "each is about something that is on the page").to_have_count(1)
        if number < 5:
            callout.get_by_role("button", name="Next").click()
    page.reload()
    callout.get_by_role("button", name="Skip").click()
    callout.wait_for(state="hidden")
    page.reload()
    page.get_by_role("heading", name="2 things need a person").wait_for()
    page.locator("table.series td").first.wait_for()
    assert callout.count() == 0
