"""Words for people: where the page of a commit is."""

import re

import pandas as pd
import pytest

from tilewatch.dashboard.panels.regression_picture import COMMITS_AFTER, COMMITS_BEFORE, around
from tilewatch.dashboard.text import commit_address, plain, plain_code, without_links

SHA = "9c0d1e2f" + "0" * 32


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("https://github.com/NVIDIA/TileGym", f"https://github.com/NVIDIA/TileGym/commit/{SHA}"),
        ("https://github.example.org/a/b.git", f"https://github.example.org/a/b/commit/{SHA}"),
        ("https://gitlab.com/a/b.git", f"https://gitlab.com/a/b/-/commit/{SHA}"),
        ("https://example.org/kernels.git", None),
        ("tilewatch", None),
        ("javascript://github.com/%0aalert(1)", None),
    ],
)
def test_a_commit_has_a_page_only_at_a_forge_that_is_known(repository: str, address: str | None) -> None:
    assert commit_address(repository, SHA) == address


def test_text_of_others_is_one_line_without_markup() -> None:
    hostile = "![p](http://x.example/p.png) [a](b)\n# :red[c] $d$ `e` <f> www.x.example"
    escaped = plain(hostile)
    seen = re.sub(r"\\([^\w\s])", r"\1", escaped).replace("\u2060", "")
    assert seen == hostile.replace("\n", " "), "nothing that is seen is lost"
    for markup in ("![", " [", "p](", "a](", " $d$", "http://", "www.", "\n", " <f"):
        assert markup not in escaped, markup
    assert plain("gemm_fp8 320x32576x7168 at 3.5 %, a#1: 'b' (c)") == "gemm_fp8 320x32576x7168 at 3.5 %, a#1: 'b' (c)"
    assert plain_code("a` ![x](y)\nb") == "`a' ![x](y) b`"


def test_a_document_of_others_keeps_its_tables_and_loses_its_links() -> None:
    document = "# Title\n| a | b |\n|---|---|\n![p](http://x.example) [q][r]\n[r]: http://x.example"
    safe = without_links(document)
    assert safe.replace("\u2060", "") == document
    assert not any(markup in safe for markup in ("](", "][", "]:", "http://"))


def test_a_sha_that_is_none_has_no_page() -> None:
    assert commit_address("https://github.com/a/b", "main") is None


def test_the_picture_of_a_step_has_the_commits_around_it_and_else_the_newest() -> None:
    points = pd.DataFrame({"sha": [str(i) for i in range(100)]})
    assert around(points, "60")["sha"].tolist() == [str(i) for i in range(60 - COMMITS_BEFORE, 60 + COMMITS_AFTER)]
    assert around(points, "3")["sha"].iloc[0] == "0"
    assert around(points, "gone")["sha"].tolist() == [str(i) for i in range(100 - COMMITS_BEFORE, 100)]
