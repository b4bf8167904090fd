"""One journey per page in a real browser: the page stands, answers a click, and asks nobody outside for anything."""

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.dashboard.fixtures.drawn import await_all_drawn
from tests.dashboard.fixtures.keyboard import walk_to
from tests.dashboard.fixtures.small_database import PROBLEM
from tilewatch.db import session
from tilewatch.db.models import Sweep, Trial

pytestmark = pytest.mark.browser


def cell(within: Any, text: str) -> Any:
    """A cell of a data frame: drawn on a canvas, and there for screen readers as a table inside of it."""
    return within.locator("canvas td", has_text=text).first


def select_first_row(table: Any) -> None:
    """Clicks its check box, once the table is drawn and stands still."""
    table.locator("canvas td").first.wait_for(state="attached")
    await_all_drawn(table.page)
    table.click(position={"x": 18, "y": 35 + 17})


def test_overview_leads_from_a_regression_to_its_run_beside_the_chart(page: Any) -> None:
    page.goto("/?since=a+commit&from=5e6f7a8b00&movers=true")
    page.get_by_text("2 things need a person: 1 regression, 1 alarm.").wait_for()
    page.locator("table.series td").first.wait_for()
    table = page.get_by_test_id("stDataFrame").first
    cell(table, "320x32576x7168").wait_for(state="attached")
    select_first_row(table)
    page.get_by_role("link", name="Open its run").click()
    page.wait_for_url("**/series?run=*")
    page.get_by_text("9.3 % slower than its history").wait_for()
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for()


def test_the_overview_has_no_table_that_needs_a_script_before_somebody_opens_it(page: Any) -> None:
    """A data frame makes a browser load 1.7 MB of script."""
    page.goto("/?since=a+commit&from=5e6f7a8b00")
    page.locator("table.series td").first.wait_for()
    page.get_by_text("Biggest movers, as a table").wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    assert page.get_by_test_id("stDataFrame").count() == 0
    page.get_by_text("Biggest movers, as a table").click()
    page.get_by_test_id("stDataFrame").wait_for()
    page.wait_for_url("**/?*movers=true*")


def test_markup_in_an_address_is_drawn_as_it_is(page: Any) -> None:
    answer = page.goto(
        "/series?run=![p](http://x.example/p.png)[Sign in](http://x.example)$x$:red[y]http://x.example<b>"
    )
    alert = page.get_by_test_id("stAlert")
    alert.get_by_text("[Sign in](http").wait_for()
    assert "$x$:red[y]http" in alert.inner_text()
    assert "img-src 'self' data: blob:;" in answer.headers["content-security-policy"], "nor would one be fetched"
    assert alert.locator("a, img, .katex, span[style], b").count() == 0


def test_the_overview_is_one_stop_of_the_tab_key_and_walked_by_arrows(page: Any) -> None:
    page.goto("/?since=a+commit&from=5e6f7a8b00")
    page.locator("table.series td").first.wait_for()
    walk_to(page, "0.83 ▼+9.3%")
    page.get_by_role("tooltip").get_by_text("9c0d1e2f00").wait_for()
    page.keyboard.press("ArrowDown")
    expect(page.locator(":focus")).to_have_text("0.63")
    page.keyboard.press("ArrowDown")
    expect(page.locator(":focus"), "the last row").to_have_text("0.63")
    for words in ("Fold all", "Save as PNG"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text(words)
    for _ in range(2):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/series?*problem=4096x4096x4096*")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()


def test_names_of_series_stay_in_sight_where_their_table_scrolls(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto("/?since=a+commit&from=5e6f7a8b00")
    name = page.locator("table.series tbody th").last
    name.wait_for()
    before = name.bounding_box()
    scroll = "wide => { wide.style.width = '150px'; wide.scrollLeft = 50; return wide.scrollLeft }"
    scrolled = page.locator(".series-grid .wide").evaluate(scroll)
    assert before["x"] - name.bounding_box()["x"] < 5 < scrolled, "the space between cells, at most"
    assert before["width"] > 100, "letters below each other"


def test_the_overview_is_saved_as_the_kind_of_picture_that_was_picked_and_its_operators_fold(page: Any) -> None:
    with page.expect_request(lambda request: "/PlotlyChart." in request.url):  # the script of figures comes early
        page.goto("/?since=a+commit&from=5e6f7a8b00")
        page.locator("table.series td").first.wait_for()
    assert page.locator(".js-plotly-plot").count() == 0
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as PNG").click()
    assert saved.value.suggested_filename == "tilewatch-ratios-libraries.png"
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    page.get_by_role("radio", name="SVG").or_(page.get_by_role("button", name="SVG", exact=True)).first.click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as SVG").click()
    drawn = Path(saved.value.path()).read_text()
    assert drawn.startswith("<svg")
    for words in ("0.83 ▼+9.3%", "320x32576x7168", "ratio to DeepGEMM, or to the library that a cell names"):
        assert f">{words}</text>" in drawn
    link = page.get_by_role("link", name="0.83 ▼+9.3%")
    link.wait_for()
    operator = page.get_by_role("button", name=re.compile("gemm_.?fp8"))  # a line may break in the name
    operator.click()
    link.wait_for(state="hidden")
    expect(operator).to_have_attribute("aria-expanded", "false")
    page.get_by_text("a week ago").click()
    page.get_by_text("No series has a newer run to compare since a week ago, of 2 series").wait_for()
    page.locator("button[aria-expanded=false]", has_text=re.compile("gemm_.?fp8")).wait_for()  # stays when it ran again
    page.get_by_role("button", name="Unfold all").click()
    page.get_by_role("link", name="0.63").wait_for()


STOP_CLOCK = "window.readTime = Date.prototype.getTime, Date.prototype.getTime = (now => () => now)(Date.now()), 0"
"""To Plotly two clicks are a double click within 500 ms, which a busy machine may need for the first one."""
RINGED = """commit => document.querySelector('.js-plotly-plot')?.data.some(
    ({name, x}) => name === 'this run' && x[0] === commit
)"""
RANGES = """(({layout: {xaxis, yaxis}}) => [...xaxis.range, ...yaxis.range].map(end => end.toFixed(3)))(
    document.querySelector('.js-plotly-plot')
)"""
SHOWS_RANGES = f"ends => String({RANGES}) === String(ends)"
SHOWS_WHOLE = f"""values => {{
    const [first, last, ...rest] = {RANGES};
    return !location.search.includes('zoom') && first < 0 && last > 2 && String(rest) === String(values);
}}"""


@pytest.mark.parametrize("opened", ["/series", "/series?gpu=h200"])
def test_a_click_on_a_point_a_reload_and_back_keep_what_a_chart_was_zoomed_to_until_it_is_reset(
    page: Any, opened: str
) -> None:
    """Streamlit sends the parameters that it knows with a click, if it knows any, and not those of the address."""
    page.goto(opened)
    page.wait_for_function(RINGED, arg="9c0d1e2f00")
    await_all_drawn(page)
    whole = page.evaluate(RANGES)
    page.locator(".js-plotly-plot").first.hover()
    page.locator('.modebar-btn[data-title="Zoom in"]').first.click(force=True)
    page.wait_for_url("**/series?*zoom=*")
    await_all_drawn(page)
    zoomed = page.evaluate(RANGES)
    assert all(abs(float(now) - float(then)) > 0.01 for now, then in zip(zoomed, whole, strict=True))
    page.locator(".scatterlayer .trace .point").nth(1).click(force=True)
    page.wait_for_function(RINGED, arg="5e6f7a8b00")
    page.wait_for_function(SHOWS_RANGES, arg=zoomed)
    page.reload()
    page.wait_for_function(RINGED, arg="5e6f7a8b00")
    page.wait_for_function(SHOWS_RANGES, arg=zoomed)
    page.go_back()
    page.wait_for_function(RINGED, arg="9c0d1e2f00")
    page.wait_for_function(SHOWS_RANGES, arg=zoomed)
    page.get_by_role("radio", name="This run").or_(page.get_by_role("button", name="This run")).first.click()
    page.get_by_text("Paired samples").wait_for()
    page.wait_for_function(SHOWS_RANGES, arg=zoomed)  # another choice keeps it too
    await_all_drawn(page)  # a chart that is drawn again between two clicks takes them for single ones
    page.evaluate(STOP_CLOCK)
    # A point lies 16 px below the middle. Plotly may take a click on it for the choice of a run.
    page.locator(".js-plotly-plot .nsewdrag").first.dblclick(force=True, position={"x": 100, "y": 100})
    page.evaluate("Date.prototype.getTime = readTime, 0")
    page.wait_for_function(SHOWS_WHOLE, arg=whole[2:])
    await_all_drawn(page)  # the run that a double click begins knows the zoom
    page.reload()
    page.wait_for_function(RINGED, arg="9c0d1e2f00")
    page.wait_for_function(SHOWS_WHOLE, arg=whole[2:])


def test_a_point_tells_its_commit_and_a_click_opens_its_run_whose_link_shows_the_same_again(page: Any) -> None:
    page.goto("/series?view=This+run")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    await_all_drawn(page)
    point = page.locator(".scatterlayer .trace .point").first
    point.hover(force=True)  # the drag layer lies over the points and hands the pointer on
    page.locator(".hovertext").get_by_text("1a2b3c4d00").wait_for()
    loaded = page.evaluate("performance.timeOrigin")
    newest = page.get_by_role("heading", name="9c0d1e2f00 Let <b>two</b> blocks share an SM")
    newest.wait_for()
    await_all_drawn(page)
    point.click(force=True)
    page.wait_for_url("**/series?*run=*")
    clicked = page.get_by_role("heading", name="1a2b3c4d00 Walk tiles along M first")
    clicked.wait_for()
    newest.wait_for(state="detached")
    assert page.evaluate("performance.timeOrigin") == loaded, "the page is the same"
    expect(page.locator(".js-plotly-plot").first, "beside the chart").to_be_visible()
    page.get_by_text("the first of its series").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Samples as CSV").click()
    assert saved.value.suggested_filename.endswith(".csv")
    page.reload()
    clicked.wait_for()
    page.get_by_text("Paired samples").wait_for()
    page.go_back()
    newest.wait_for()


def test_compare_keeps_its_two_commits_in_the_address(page: Any) -> None:
    page.goto("/compare")
    page.get_by_text("0 faster, 1 slower").wait_for()
    page.locator(".js-plotly-plot .scatterlayer .point").first.wait_for()
    page.get_by_role("combobox", name="B").click()
    page.get_by_role("option", name="5e6f7a8b00").click()
    page.get_by_text("0 faster, 0 slower, 1 not judged yet, 1 undecided").wait_for()
    page.wait_for_url("**/compare?*b=5e6f7a8b00*")
    page.reload()
    page.get_by_text("0 faster, 0 slower, 1 not judged yet, 1 undecided").wait_for()


def test_architectures_show_the_configs_that_lost_their_tma(page: Any) -> None:
    page.goto("/architectures")
    page.get_by_text("Lost TMA loads: 3 configs").wait_for()
    cell(page, "2 → 0").wait_for(state="attached")
    choices = (page.get_by_role(role, name="sm_90 NVIDIA H200") for role in ("radio", "button"))
    next(choices).or_(next(choices)).click()
    page.get_by_text("No config that compiled at both").wait_for()
    page.reload()
    page.get_by_text("No config that compiled at both").wait_for()


def test_trends_answer_a_change_of_what_is_shown_and_keep_it_in_the_address(page: Any) -> None:
    page.goto("/series")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    page.get_by_text("driver 580.82 → 590.11", exact=True).wait_for()
    page.get_by_role("combobox", name="Show").click()
    page.get_by_role("option", name="TFLOP/s").click()
    page.get_by_text("TFLOP/s (operations / median time)").wait_for()
    page.wait_for_url("**/series?*show=TFLOP*")
    page.reload()
    page.get_by_text("TFLOP/s (operations / median time)").wait_for()


def test_a_range_dragged_along_an_axis_keeps_the_configs_that_pass_and_narrow_axes_do_not_overlap(
    page: Any,
) -> None:
    page.goto("/series?gpu=h200")
    lines = page.locator(".parallel polyline")
    lines.first.wait_for(state="attached")
    count = page.locator(".parallel").get_by_role("status")
    everything = f"{lines.count()} of {lines.count()} configs"
    expect(count).to_have_text(everything)
    axis = page.locator(".parallel .brush").first
    await_all_drawn(page)
    axis.scroll_into_view_if_needed()
    box = axis.bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] - 1)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] - 20)
    page.mouse.up()
    expect(count).not_to_have_text(everything)
    left = page.locator(".parallel polyline:not(.out)").count()
    assert 0 < left < lines.count()
    expect(count).to_have_text(f"{left} of {lines.count()} configs")
    page.mouse.click(middle, box["y"] + box["height"] / 2)
    expect(count).to_have_text(everything)
    for width in (800, 400):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function("width => document.querySelector('.parallel').clientWidth < width", arg=width)
        page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        boxes = [name.bounding_box() for name in page.locator(".parallel .name").all()]
        assert len(boxes) > 6
        for one, other in combinations(boxes, 2):
            apart_x = one["x"] + one["width"] < other["x"] or other["x"] + other["width"] < one["x"]
            apart_y = abs(one["y"] - other["y"]) > 16  # words of 12 px; the boxes are higher than the words
            assert apart_x or apart_y
        reaches = page.locator(".parallel svg > g:not(:has(polyline))").evaluate_all(
            "axes => axes.map(axis => [axis.querySelector('line').getBoundingClientRect().left,"
            " ...[...axis.querySelectorAll('text:not(.name)')].map(words => words.getBoundingClientRect().right)])"
        )
        for (_, *words), (next_axis, *_) in pairwise(reaches):
            assert max(words) < next_axis, "an axis' numbers do not lie on the next axis"


def test_a_selected_config_shows_what_the_compiler_said_and_stays_selected_when_new_results_appear(
    page: Any, filled_url: str
) -> None:
    page.goto("/series?gpu=b200")
    page.get_by_text("compiled 15").wait_for()
    page.get_by_text("All configs").wait_for()
    page.get_by_text("3 configs failed: compile error 3").wait_for()
    table = page.get_by_test_id("stDataFrame").last
    select_first_row(table)
    cell(page, "lowered to TMA").wait_for(state="attached")
    with session.session(filled_url) as opened:
        done = opened.query(Trial).filter_by(status="compiled").first()
        waiting = opened.query(Trial).join(Sweep).filter(Trial.status == "waiting", Sweep.problem == PROBLEM).first()
        assert done is not None
        assert waiting is not None
        waiting.status, waiting.compilation_id = "compiled", done.compilation_id
    try:
        page.get_by_text("compiled 16").wait_for()
        expect(cell(page, "lowered to TMA")).to_have_count(1)
    finally:
        with session.session(filled_url) as opened:
            again = opened.get_one(Trial, (waiting.sweep_id, waiting.config_id))
            again.status, again.compilation_id = "waiting", None


def test_jobs_open_the_trace_of_a_failed_one_and_have_a_title_a_logo_and_nothing_that_is_not_found(page: Any) -> None:
    missing: list[str] = []
    page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
    page.goto("/jobs")
    page.get_by_role("heading", name="Jobs & workers", exact=True).wait_for()
    page.wait_for_function("document.title === 'Jobs & workers - Tilewatch'")
    page.wait_for_function("document.querySelector('link[rel~=icon]').href.includes('svg')")
    page.get_by_test_id("stHeaderLogo").or_(page.get_by_test_id("stLogo")).first.wait_for()
    await_all_drawn(page)
    page.get_by_text("No space left on device").first.click()
    page.get_by_text("attempt 3").wait_for()
    trace = page.locator('[data-testid="stExpander"] pre').first
    trace.wait_for()
    expect(trace).to_contain_text("OSError")
    page.get_by_text("1 job waits in queue").first.wait_for()
    page.get_by_text("No space left on device").first.click()  # closed again: a kept trace is the one that may be shown
    trace.wait_for(state="hidden")
    assert missing == []


@pytest.mark.usefixtures("new_regression")
def test_a_regression_is_opened_and_acknowledged_and_its_link_shows_that(page: Any) -> None:
    page.goto("/regressions")
    page.get_by_text("worst first within each").wait_for()
    table = page.get_by_test_id("stDataFrame").first
    cell(table, "gemm_fp8").wait_for(state="attached")
    select_first_row(table)
    page.wait_for_url("**/regressions?regression=1")
    name = page.get_by_role("textbox", name="Your name")
    name.fill("kim")
    name.press("Enter")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("Acknowledge: done.").wait_for()
    page.reload()
    page.get_by_text("owner kim (not signed in)").wait_for()
    page.get_by_text("acknowledge, → acknowledged").wait_for()


def test_another_gpu_is_picked_from_the_list_and_what_moved_between_its_commits_is_in_the_address(page: Any) -> None:
    page.goto("/series?gpu=b200")
    page.get_by_text("All configs").wait_for()
    page.get_by_role("combobox", name="GPU").click()
    page.get_by_role("option", name="h200").click()
    page.get_by_text("timed with cupti").wait_for()
    page.wait_for_url("**/series?*gpu=h200*")
    page.get_by_role("radio", name="What moved").or_(page.get_by_role("button", name="What moved")).first.click()
    page.get_by_text("Newly failing: 2 configs").wait_for()
    page.reload()
    page.get_by_text("Newly failing: 2 configs").wait_for()


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("/trends?kernel=gemm_fp8&show=Time", "series?kernel=gemm_fp8&show=Time"),
        ("/sweeps?gpu=h200&view=What+moved", "series?gpu=h200&view=What+moved"),
        ("/evidence?run=5", "series?run=5&view=This+run"),
    ],
)
def test_an_old_address_leads_to_the_same_place_of_the_series_page(page: Any, old: str, now: str) -> None:
    assert page.request.get(old, max_redirects=0).headers["location"] == now


def test_a_table_is_saved_as_csv(page: Any) -> None:
    page.add_init_script("delete window.showSaveFilePicker")  # its dialogue is the browser's and has no download
    page.goto("/series?points=true")
    page.get_by_test_id("stDataFrame").first.wait_for()
    await_all_drawn(page)  # beside other tests, a table below was there first
    # by key: for the pointer the button is there while that is over the table, which a chart above may move
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as CSV").first.press("Enter")
    assert "5e6f7a8b00" in Path(saved.value.path()).read_text()


def test_a_browser_shows_that_a_page_loads_before_its_scripts_have_come(page: Any) -> None:
    page.route("**/static/js/**", lambda _: None)  # no script ever comes
    page.goto("/series", wait_until="commit")
    page.get_by_role("status").get_by_text("Tilewatch is loading").wait_for()


def test_a_plot_is_saved_as_the_kind_of_picture_that_was_picked_which_is_kept(page: Any) -> None:
    page.goto("/series")
    page.get_by_text("over 1: faster than DeepGEMM").wait_for()
    page.get_by_role("radio", name="SVG").or_(page.get_by_role("button", name="SVG")).first.click()
    page.wait_for_function("document.querySelector('.js-plotly-plot')._context.toImageButtonOptions.format === 'svg'")
    await_all_drawn(page)
    page.locator(".js-plotly-plot").first.hover()
    save = page.locator('.modebar-btn[data-title^="Download plot"]').first
    save.wait_for()
    with page.expect_download() as saved:
        save.click(force=True)
    assert saved.value.suggested_filename == "tilewatch-trend.svg"
    page.get_by_role("link", name="Inbox").click()
    page.get_by_text("2 things need a person").wait_for()
    page.get_by_text("Plots are saved as").wait_for(state="detached")
    page.get_by_role("link", name="Series", exact=True).click()
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for()
    page.wait_for_function("document.querySelector('.js-plotly-plot')._context.toImageButtonOptions.format === 'svg'")
