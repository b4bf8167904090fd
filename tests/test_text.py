"""Words that every part of the product writes alike."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewatch.text import (
    LINE_CHARACTERS,
    LONGEST_FAILURE,
    change_text,
    count_text,
    failure_text,
    fit_lines,
    plain,
    plain_code,
    plain_html,
    short_sha,
    shorten,
    without_links,
)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1, "series", "1 series"),
        (2, "series", "2 series"),
        (9_000, "config", "9,000 configs"),
        (2, "new regression", "2 new regressions"),
    ],
)
def test_a_number_and_its_noun_agree(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


def test_a_commit_has_ten_digits_and_a_change_its_sign() -> None:
    assert short_sha("1a2b3c4d5e6f" + "0" * 28) == "1a2b3c4d5e"
    assert (change_text(0.0312), change_text(-0.5)) == ("+3.1 %", "-50.0 %")
    assert change_text(-0.0003) == change_text(0.0003) == "+0.0 %"


def test_text_of_others_is_one_line_without_markup() -> None:
    hostile = "![p](http://x.example/p.png) [a](b)\n# :red[c] $d$ `e` <f> www.x.example"
    escaped = plain(hostile)
    seen = re.sub(r"\\([^\w\s])", r"\1", escaped).replace("\u2060", "")
    assert seen == hostile.replace("\n", " "), "nothing that is seen is lost"
    for markup in ("![", " [", "p](", "a](", " $d$", "http://", "www.", "\n", " <f"):
        assert markup not in escaped, markup
    assert plain("gemm_fp8 320x32576x7168 at 3.5 %, a#1: 'b' (c)") == "gemm_fp8 320x32576x7168 at 3.5 %, a#1: 'b' (c)"
    assert plain_code("a` ![x](y)\nb") == "`a' ![x](y) b`"


@pytest.mark.parametrize(
    ("hostile", "seen"),
    [
        (":+1: :100: a:b:c", ":\u2060+1: :\u2060100: a\\:\u2060b\\:c"),
        ("~~gone~~ _this_ gemm_fp8", r"\~\~gone\~\~ \_this\_ gemm_fp8"),
        ("&lt; &#60;", r"\&lt; \&#60;"),
        ("a -> b", "a -\u2060\\> b"),
        ("# a # b", r"\# a # b"),
        ("- a - b", r"\- a - b"),
        ("1. a 2. b", r"1\. a 2. b"),
        ("-0.5 #1 2.5", "-0.5 #1 2.5"),
        ("a <- b -- c", "a \\<\u2060- b -\u2060- c"),
        ("a >= b <= c", "a \\>\u2060= b \\<\u2060= c"),
        ("\u202egnp.exe\u202c", "\ufffdgnp.exe\ufffd"),
    ],
)
def test_text_of_others_makes_no_sign_and_no_picture(hostile: str, seen: str) -> None:
    assert plain(hostile) == seen


def test_text_of_others_in_a_chart_has_no_markup() -> None:
    assert plain_html("<b>bold</b>\n&amp; \u202e") == "&lt;b&gt;bold&lt;/b&gt; &amp;amp; \ufffd"


def test_a_document_of_others_keeps_its_tables_and_loses_its_links() -> None:
    document = "# Title\n| a | b |\n|---|---|\n![p](http://x.example) [q][r]\n[r]: http://x.example"
    safe = without_links(document)
    assert safe.replace("\u2060", "") == document
    assert not any(markup in safe for markup in ("](", "][", "]:", "http://"))


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghij_klmnop",
        "glpat-abcdefghijklmnopqrst",
        "xoxb-123456789012-abcdefghijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG",
    ],
)
def test_what_a_library_read_and_raised_is_scrubbed(secret: str) -> None:
    said = failure_text(f"ValueError: {secret} is odd")
    assert "***" in said
    assert not {each for each in re.split(r"\W+", secret) if len(each) > 15} & set(re.split(r"\W+", said))


def test_a_failure_is_cut_and_one_of_usual_length_stays() -> None:
    assert failure_text("tile_m=48 does not divide m=100") == "tile_m=48 does not divide m=100"
    assert len(failure_text("x y" * LONGEST_FAILURE)) == LONGEST_FAILURE


LINK = "http://here/checks?check=7"


@given(st.lists(st.text(max_size=80), max_size=60), st.integers(60, 400))
def test_lines_fit_and_the_last_one_counts_the_others(lines: list[str], longest: int) -> None:
    kept = fit_lines(lines, longest, LINK)
    assert sum(len(line) + 1 for line in kept) <= longest
    if kept == lines:
        return
    assert kept[:-1] == [shorten(line, longest) for line in lines[: len(kept) - 1]]
    assert kept[-1] == f"and {len(lines) - len(kept) + 1} more: {LINK}"


def test_what_fits_stays_as_it_is() -> None:
    assert fit_lines(["gemm is slower", "again: ..."], 26) == ["gemm is slower", "again: ..."]
    assert fit_lines(["gemm is slower", "again: ..."], 25) == ["and 2 more"]


def test_a_long_line_is_cut() -> None:
    (line,) = fit_lines(["x" * 100_000], 60_000)
    assert len(line) == LINE_CHARACTERS
    assert line.endswith("…")
