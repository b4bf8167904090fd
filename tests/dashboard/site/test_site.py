"""A published site in a browser without a network, opened from its files: it answers, and runs no script of others."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect
from pydantic import TypeAdapter

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import hostile
from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM, REPOSITORY, SHAS, SUBJECTS
from tests.dashboard.fixtures.walker import MADE
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.scoreboard import GpuScore, write_direction, write_distance
from tilewatch.dashboard.site import write_site
from tilewatch.dashboard.site.session_output import EXPECTED_ERROR
from tilewatch.dashboard.site.site_content import Block, Party, read_parties, write_parties
from tilewatch.dashboard.site.write_site import SiteOrder
from tilewatch.db.models import Regression
from tilewatch.db.session import session
from tilewatch.text import count_text
from tilewatch.worker.transfer.importing import import_file
from tilewatch.worker.transfer.toolchain_reports import import_report
from tilewatch.worker.transfer.tuned_tables import write_tables

pytestmark = pytest.mark.browser

RECORDINGS = Path(__file__).parents[3] / "recordings"
OWN = "https://example.org/tilewatch.git"
HOSTILE, PLAIN = hostile.write("their lab"), "our lab"
DRAWN = "html:not(:has(.chart:not([data-drawn])))"
ATOM = "{http://www.w3.org/2005/Atom}"
PHONE_PX = 390
CUT = """[...document.querySelectorAll(".wide:has(> .plain)")].filter((each) => each.scrollWidth > each.clientWidth)
    .concat([...document.querySelectorAll(".chart svg text")].filter((each) => {
        const text = each.getBoundingClientRect(), chart = each.closest(".chart").getBoundingClientRect();
        return text.width && (text.right > chart.right + 1 || text.left < chart.left - 1);
    })).map((each) => each.textContent)"""
"""Returns the text of each table that hides a column and of each chart's text that leaves its chart."""
NOTE = "only for those who work on it"


@dataclass(frozen=True)
class Sites:
    """Two parties' sites: the second one shows both. `url` is the second one's database."""

    hostile: Path
    merged: Path
    url: str


@pytest.fixture(scope="module")
def sites(new_filled_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("sites")
    report = RECORDINGS / "toolchains" / "cuda-tile-1.6.0..cuda-tile-1.7.0.json"
    with new_filled_database() as url, new_filled_database() as own_url:
        import_report(url, report)
        hostile.rewrite(url)
        publish(url, folder / "hostile", HOSTILE)
        write_parties(folder / "hostile", tuple(map(spoil_figures, read_parties(folder / "hostile"))))
        import_report(own_url, report)
        import_file(own_url, RECORDINGS / "h200-history-2.jsonl.gz", named=OWN)
        with session(own_url) as opened:
            opened.get_one(Regression, 1).note = NOTE
            opened.get_one(Regression, 1).owner = "kim@example.org"
        publish(own_url, folder / "merged", PLAIN, folder / "hostile")
        yield Sites(folder / "hostile", folder / "merged", own_url)


def spoil_figures(party: Party) -> Party:
    """Puts a script into each figure, as nobody's charts have it: a file may have been written by hand."""
    script = json.dumps(f"</script><script>window.{hostile.RAN} = 1</script>")

    def spoil(each: Block) -> Block:
        return replace(each, figure=each.figure.replace('"layout":{', f'"layout":{{"title":{{"text":{script}}},'))

    spoiled = [replace(page, blocks=tuple(map(spoil, page.blocks))) for page in party.pages]
    assert any("</script>" in each.figure for page in spoiled for each in page.blocks)
    return replace(party, pages=tuple(spoiled))


def publish(url: str, folder: Path, name: str, *merge: Path, address: str = "") -> None:
    tables = folder.with_suffix(".json")
    write_tables(url, tables, str, every_repository=True)
    order = SiteOrder(folder, name, "0.1.0", tables=tables, merge=merge, address=address)
    with session(url) as opened:
        assert write_site.write_site(opened, order).endswith(f"open {folder / 'index.html'}")


@pytest.fixture(params=["1440", "400"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page without a network, wide or as a phone has it. It asks nobody for anything, and nothing fails in it."""
    yield from open_page(browser, int(request.param), bypass_csp=False)


@pytest.fixture
def trusting_page(browser: Any) -> Iterator[Any]:
    """A page in which a script of others would run: the browser does not heed the site's policy."""
    yield from open_page(browser, 1440, bypass_csp=True)


def open_page(browser: Any, width: int, *, bypass_csp: bool) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": 900}, bypass_csp=bypass_csp)
    context.set_offline(True)
    opened = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: message.type != "error" or wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert wrong == []


def show(page: Any, file: Path) -> None:
    page.goto(file.as_uri())
    page.locator(DRAWN).wait_for(state="attached")


def test_ten_questions_of_the_front_page_are_answered_from_a_file(page: Any, sites: Sites) -> None:
    score = find_score(sites.url)
    show(page, sites.merged / "index.html")
    own, regressed = (page.locator(f'section[aria-label="{name}"]').first for name in (OWN, REPOSITORY))
    answers = {
        "how far is each GPU model from DeepGEMM": own.locator(".number b").inner_text() == f"{score.ratio:.2f}",
        "in points, and which side": write_distance(score) in own.locator(".distance").inner_text(),
        "is it getting better": write_direction(score) in own.locator(".distance").inner_text(),
        "how many operators are at or over it": f"{score.ahead} of {count_text(score.series, 'operator')} at or over"
        in own.inner_text(),
        "is a regression open": regressed.locator(".answer").inner_text().startswith("1 regression is open."),
        "when and where was it measured": "Newest measurement 2026-11-20 03:16 UTC" in regressed.inner_text()
        and "Measured on" in regressed.inner_text()
        and "node-1" in regressed.inner_text(),
    }
    cells = regressed.locator("table.plain tbody tr").first.locator("td").all_inner_texts()
    answers["how much slower, and with which interval"] = cells[1] == "+9.3 % (+8.9 % to +9.7 %)"
    answers["since which commit, and whose change"] = cells[3:5] == [f"{SHAS[2][:10]} {SUBJECTS[2]}", "our code"]
    link = own.locator("table.series td a").first
    lowest = min(find_ratios(sites.url))
    answers["which operator is furthest behind"] = link.inner_text().startswith(f"{lowest:.2f}")
    safe = page.get_by_role("row").filter(has=page.get_by_role("link", name="cuda-tile-1.6.0 → cuda-tile-1.7.0")).first
    answers["is a newer toolchain safe to take"] = safe.locator("td").nth(1).inner_text() == "safe"
    assert len(answers) == 10
    assert [question for question, answered in answers.items() if not answered] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def find_score(url: str) -> GpuScore:
    (score,) = reads.scores(url, OWN)
    return score


def find_ratios(url: str) -> list[float]:
    recent = reads.recent_ratios(url, OWN, 30)
    return [
        ratios[-1]
        for ratios, names in zip(recent["ratios"], recent["baselines"], strict=True)
        if names[-1] == "deepgemm"
    ]


def test_a_click_leads_to_a_series_a_regression_and_a_table(page: Any, sites: Sites) -> None:
    show(page, sites.merged / "index.html")
    page.locator(f'section[aria-label="{REPOSITORY}"] table.plain a').first.click()
    expect(page.locator("h1")).to_have_text(f"Regression of {KERNEL} on h200")
    page.locator(DRAWN).wait_for(state="attached")
    text = page.locator("main").inner_text()
    assert "its loads lost TMA" in text
    expect(page.locator(".chart .main-svg").nth(1), "the trend, and the replay that confirmed it").to_be_visible()
    assert NOTE not in page.content()
    assert "kim@example.org" not in page.content()
    page.get_by_role("link", name=f"{KERNEL} {PROBLEM}").click()
    page.locator(DRAWN).wait_for(state="attached")
    text = page.locator("body").inner_text()
    ticks = page.locator(".chart .xtick").all_text_contents()
    assert sum(tick.startswith("11-") for tick in ticks) == 3, "the axis has the days of its commits"
    for wanted in ("The fastest config takes 142.0 us", "cublaslt", SHAS[2], "NVIDIA H200", "node-1", "590.11", PLAIN):
        assert wanted in text, wanted
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name=f"Tuned table of {KERNEL}").first.click()
    expect(page.get_by_role("link", name=PROBLEM)).to_have_count(1)


def test_no_script_of_others_runs_in_any_page(trusting_page: Any, sites: Sites) -> None:
    """Each text stays text where the site's policy does not help, also what another party's file holds."""
    files = sorted(sites.merged.glob("*.html"))
    assert sum("their-lab" in file.name for file in files) >= 5
    for file in files:
        show(trusting_page, file)
        assert not trusting_page.evaluate(f"'{hostile.RAN}' in window"), file.name
        assert trusting_page.locator(MADE).count() == 0, file.name
    show(trusting_page, sites.hostile / "index.html")
    assert hostile.MIDDLE in trusting_page.locator("body").inner_text()


def test_the_policy_of_a_page_stops_scripts_that_it_does_not_bring(browser: Any, sites: Sites) -> None:
    context = browser.new_context()
    opened = context.new_page()
    opened.goto((sites.merged / "index.html").as_uri())
    opened.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hostile = 1\">')")
    opened.evaluate("new Promise(done => setTimeout(done))")
    assert not opened.evaluate(f"'{hostile.RAN}' in window")
    context.close()


def test_every_kind_of_page_fits_a_phone(browser: Any, sites: Sites) -> None:
    """Nothing is scrolled sideways, no table hides a column, and no text of a chart is cut."""
    kinds = ("series", "regression", "improvement", "toolchains", "tuned")
    files = [file for kind in kinds for file in sorted(sites.merged.glob(f"{kind}-*.html"))[:4]]
    assert {file.name.partition("-")[0] for file in files} == set(kinds)
    for opened in open_page(browser, PHONE_PX, bypass_csp=False):
        for file in (sites.merged / "index.html", *files):
            show(opened, file)
            assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE_PX, file.name
            assert opened.evaluate(CUT) == [], file.name
        show(opened, sites.merged / "index.html")
        cell = opened.locator("table.stacked td").first
        assert cell.evaluate("cell => getComputedStyle(cell, '::before').content").startswith('"kernel')
        opened.set_viewport_size({"width": 1440, "height": 900})
        expect(opened.locator("table.stacked")).to_have_count(0)


def test_an_operator_folds_its_problems(page: Any, sites: Sites) -> None:
    show(page, sites.merged / "index.html")
    body = page.locator(f'tbody[data-operator="{KERNEL}"]').first
    for is_open, hidden in (("true", 0), ("false", 2), ("true", 0)):
        expect(body.locator("button")).to_have_attribute("aria-expanded", is_open)
        expect(body.locator("tr[hidden]")).to_have_count(hidden)
        body.locator("button").click()


def test_both_parties_are_shown_with_their_provenance(page: Any, sites: Sites) -> None:
    assert [party.name for party in read_parties(sites.merged)] == [PLAIN, HOSTILE]
    show(page, sites.merged / "index.html")
    heads = page.locator("h2.party").all_inner_texts()
    assert heads[0] == f"Measured by {PLAIN}"
    assert "their lab" in heads[1]
    theirs = next(file for file in sorted(sites.merged.glob("from-*series*.html")))
    show(page, theirs)
    assert "their lab" in page.locator("footer").inner_text()
    assert PLAIN not in page.locator("footer").inner_text()


def test_a_party_that_is_merged_twice_is_shown_once(sites: Sites, tmp_path: Path) -> None:
    publish(sites.url, tmp_path / "site", PLAIN, sites.merged, sites.hostile)
    assert [party.name for party in read_parties(tmp_path / "site")] == [PLAIN, HOSTILE]


def test_the_feeds_name_each_change_once_with_a_link_that_is_there(sites: Sites, tmp_path: Path) -> None:
    feed = json.loads((sites.merged / "feed.json").read_text())
    entries = ElementTree.parse(sites.merged / "feed.atom").getroot().findall(f"{ATOM}entry")  # noqa: S314 - our own
    assert len(feed["items"]) == len(entries) == 2
    for item, entry in zip(feed["items"], entries, strict=True):
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert item["url"] == link.get("href")
        assert (sites.merged / item["url"]).exists()
        assert item["id"] == entry.findtext(f"{ATOM}id")
        assert item["title"] == entry.findtext(f"{ATOM}title")
    assert any(item["title"] == f"{KERNEL} on h200: +9.3 % time, slower, new" for item in feed["items"])
    ElementTree.parse(sites.hostile / "feed.atom")  # noqa: S314 - our own; hostile words break no XML
    publish(sites.url, tmp_path / "site", PLAIN, address="https://example.org/perf")
    assert '"https://example.org/perf/regression-' in (tmp_path / "site" / "feed.json").read_text()


def test_the_badge_says_the_score(sites: Sites) -> None:
    badge = ElementTree.parse(sites.merged / "badge.svg").getroot()  # noqa: S314 - our own
    assert badge.get("aria-label") == f"H200 beside DeepGEMM: {find_score(sites.url).ratio:.2f}x"
    assert (sites.merged / "badge-h200.svg").read_bytes() == (sites.merged / "badge.svg").read_bytes()
    ElementTree.parse(sites.hostile / "badge.svg")  # noqa: S314 - our own; hostile words break no SVG


def test_a_gpu_model_without_a_score_has_no_badge_any_more(sites: Sites, tmp_path: Path) -> None:
    """A page elsewhere that shows the badge had the last score for good."""
    kept = ("series-of-old.html", "badge.css")
    (tmp_path / "site").mkdir()
    for name in (*kept, "badge-b300.svg"):
        (tmp_path / "site" / name).write_text("old")
    publish(sites.url, tmp_path / "site", PLAIN)
    assert {each.name for each in (tmp_path / "site").glob("badge*.svg")} == {"badge.svg", "badge-h200.svg"}
    assert [(tmp_path / "site" / name).read_text() for name in kept] == ["old", "old"]


def test_what_cannot_be_published_is_one_sentence(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", sites.url)
    (tmp_path / "file").write_text("")
    for folder, merge, why in (
        (tmp_path / "site", [tmp_path / "file"], "is not the file of a site"),
        (tmp_path / "file" / "site", [], "cannot be written: Not a directory"),
    ):
        order = SiteOrder(folder, PLAIN, "0.1.0", merge=tuple(merge))
        assert write_site.main([TypeAdapter(SiteOrder).dump_json(order).decode()]) == EXPECTED_ERROR
        assert why in capsys.readouterr().err
