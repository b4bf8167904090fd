"""The file of a site: read back as it was written, and refused where a value is not what a site holds."""

import datetime as dt
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import hostile
from tests.dashboard.fixtures.small_database import KERNEL, OTHER_PROBLEM, REPOSITORY
from tilewatch.dashboard.site import feeds, write_site
from tilewatch.dashboard.site.site_content import (
    FILE,
    BadSite,
    Block,
    Cell,
    Party,
    Section,
    SitePage,
    name_page,
    name_series_page,
    read_parties,
    write_parties,
)
from tilewatch.dashboard.site.write_site import SiteOrder
from tilewatch.db.models import Measurement, Run, Sweep
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.repository_names import EXAMPLES
from tilewatch.db.session import session

AT = dt.datetime(2026, 11, 28, 3, tzinfo=dt.UTC)
CHANGE = RegressionRow(
    *(7, "regression", "r", "k", "code", "its loads lost TMA", ["one"], "a" * 40, "good", "b" * 40, "bad", 1),
    *(0.09, 0.08, 0.1, "new", None, None, None, AT, AT, 1, ["h200"], 0, 0, False, False, True),
)
PAGE = SitePage(
    name_page("series", "r", "k", "p", "h200"),
    "k p on H200",
    (
        Block("text", "A sentence."),
        Block("table", columns=("one",), rows=((Cell("cell", name_page("series", "r")),),)),
        Block("chart", "words", figure='{"data": [], "layout": {}}', height_px=320),
    ),
    (("commit", "a" * 40),),
)
PARTY = Party("lab", AT, "tilewatch 0.1.0", (Section("r", (), (), (), (), (), (CHANGE,)),), (PAGE,))


def write(folder: Path, content: Any) -> Path:
    (folder / FILE).write_bytes(gzip.compress(json.dumps(content).encode()))
    return folder


def read_written(folder: Path) -> Any:
    write_parties(folder, (PARTY,))
    return json.loads(gzip.decompress((folder / FILE).read_bytes()))


def test_a_site_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write_parties(tmp_path, (PARTY,))
    assert read_parties(tmp_path) == (PARTY,) == read_parties(tmp_path / FILE)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("pages", 0, "file"), "../index.html", "should match pattern"),
        (("pages", 0, "blocks", 1, "rows", 0, 0, "page"), "javascript:alert(1).html", "should match pattern"),
        (("pages", 0, "blocks", 0, "kind"), "html", "should be 'heading'"),
        (("pages", 0, "blocks", 2, "height_px"), "1px;background:url(x)", "valid integer"),
        (("sections", 0, "regressions", 0, "size"), "<script>", "valid number"),
        (("made_at",), "yesterday", "valid datetime"),
    ],
)
def test_a_value_that_no_site_holds_is_refused_with_its_place(
    place: tuple[str | int, ...], value: str, why: str, tmp_path: Path
) -> None:
    content = read_written(tmp_path)
    within = content["parties"][0]
    for step in place[:-1]:
        within = within[step]
    assert within[place[-1]] != value
    within[place[-1]] = value
    with pytest.raises(BadSite, match=why) as refused:
        read_parties(write(tmp_path, content))
    assert ".".join(map(str, place)) in str(refused.value)


def test_a_file_of_another_kind_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadSite, match="format 2, and this Tilewatch reads format 1"):
        read_parties(write(tmp_path, {**read_written(tmp_path), "format": 2}))
    for other in ([], {"format": 1}, "text"):
        with pytest.raises(BadSite, match="is not the file of a site"):
            read_parties(write(tmp_path, other))
    (tmp_path / FILE).write_bytes(b"no gzip")
    with pytest.raises(BadSite, match="is not the file of a site"):
        read_parties(tmp_path)


@pytest.mark.parametrize("name", ["lab", "us"])
def test_a_site_that_is_left_out_is_named_with_the_reason(name: str, filled: Session, tmp_path: Path) -> None:
    """The default name is that of the machine: another site of that name was left out, and nothing said so. A site that
    somebody else made at the same moment must not hide the sentence."""
    made = [("lab", 2), ("lab", 1), ("lab", 1), ("other", 2)]
    for place, (maker, days) in enumerate(made):
        (tmp_path / str(place)).mkdir()
        party = replace(PARTY, name=maker, sections=(), made_at=AT - dt.timedelta(days=days))
        write_parties(tmp_path / str(place), (party,))
    order = SiteOrder(tmp_path / "out", name, "0.1.0", merge=tuple(tmp_path / str(place) for place in range(len(made))))
    *left_out, wrote = write_site.write_site(filled, order).split("\n")
    days = ["2026-11-26", "2026-11-27"] if name == "lab" else ["2026-11-26"]
    reason = "this site has the same name" if name == "lab" else "it is older"
    assert left_out == [f"left out what lab published {day} 03:00 UTC: {reason}" for day in days]
    assert wrote.startswith("wrote ")
    shown = ["lab", "other"] if name == "lab" else ["us", "lab", "other"]
    assert [each.name for each in read_parties(order.folder)] == shown


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parties(tmp_path, (PARTY,))
    monkeypatch.setattr("tilewatch.dashboard.site.site_content.MOST_BYTES", 1000)
    with pytest.raises(BadSite, match="has more than"):
        read_parties(tmp_path)


def test_two_nodes_that_slow_one_kernel_at_one_commit_are_two_pages_and_two_items_of_the_feed() -> None:
    nodes = [replace(CHANGE, category="node", cause=f"node n{number} is slower than n1") for number in (2, 3)]
    section = replace(PARTY.sections[0], regressions=(CHANGE, replace(CHANGE, cause="said otherwise"), *nodes))
    items = list(feeds._list_items(replace(PARTY, sections=(section,)), "https://example.org/"))
    for name in ("id", "url"):
        code, same, second, third = (item[name] for item in items)
        assert code == same
        assert len({code, second, third}) == 3


def test_an_item_of_the_feed_says_what_no_gpu_here_showed() -> None:
    """Planted examples came to the readers of the feed as regressions of a kernel."""
    rows = (CHANGE, replace(CHANGE, recorded=True), replace(CHANGE, repository=next(iter(EXAMPLES)), counted=False))
    section = replace(PARTY.sections[0], regressions=rows)
    titles = [item["title"].partition(" on ")[0] for item in feeds._list_items(replace(PARTY, sections=(section,)), "")]
    assert titles == ["k", "k (recorded)", "k (planted example)"]


def test_a_series_without_a_baseline_is_reached_from_the_front_page(
    new_filled_database: NewDatabase, tmp_path: Path
) -> None:
    """It had a page, to which no page led."""
    with new_filled_database() as url, session(url) as opened:
        sweeps = select(Sweep.id).where(Sweep.problem == OTHER_PROBLEM)
        runs = select(Run.id).where(Run.sweep_id.in_(sweeps))
        opened.execute(update(Measurement).where(Measurement.run_id.in_(runs)).values(ratio=None, baseline=None))
        write_site.write_site(opened, SiteOrder(tmp_path, "lab", "0.1.0"))
    name = name_series_page(REPOSITORY, KERNEL, OTHER_PROBLEM, "h200")
    assert (tmp_path / name).exists()
    front = (tmp_path / "index.html").read_text()
    assert f'<a href="{name}">{KERNEL} {OTHER_PROBLEM}</a>' in front


def test_the_name_of_a_page_is_safe_and_of_one_thing() -> None:
    names = [name_page("series", "r", "k", text, "h200") for text in ("a b", "a-b", hostile.END, "../" * 90, "")]
    assert len(set(names)) == 5
    pages = [SitePage(name, "", (), ()) for name in names]
    assert all(set(page.file) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.") for page in pages)
    assert max(map(len, names)) <= 150
    assert not any(".." in name for name in names)
