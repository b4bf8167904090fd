"""Words for people: units, spans of time, and where the page of a commit is."""

import datetime as dt

import pandas as pd
import pytest

from tilewatch.dashboard import text
from tilewatch.dashboard.panels.regression import COMMITS_AFTER, COMMITS_BEFORE, around
from tilewatch.dashboard.text import commit_address, timer_text
from tilewatch.text import WORD_JOINER

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


def test_a_simulated_run_names_no_timer() -> None:
    assert timer_text("cupti") == ", timed with cupti"
    assert timer_text("simulated") == ""


def test_a_sha_that_is_none_has_no_page() -> None:
    assert commit_address("https://github.com/a/b", "main") is None


def test_the_picture_of_a_step_has_the_commits_around_it_and_else_the_newest() -> None:
    points = pd.DataFrame({"sha": [str(i) for i in range(100)]})
    assert around(points, "60")["sha"].tolist() == [str(i) for i in range(60 - COMMITS_BEFORE, 60 + COMMITS_AFTER)]
    assert around(points, "3")["sha"].iloc[0] == "0"
    assert around(points, "gone")["sha"].tolist() == [str(i) for i in range(100 - COMMITS_BEFORE, 100)]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("=1+1", f"{WORD_JOINER}=1+1"),
        ("@kim", f"{WORD_JOINER}@kim"),
        ("-1.5 %", "-1.5 %"),
        ("+61.6 % (61.4 to 61.8), slower", "+61.6 % (61.4 to 61.8), slower"),
        ("-1+cmd", f"{WORD_JOINER}-1+cmd"),
        ("gemm", "gemm"),
        (-1.5, -1.5),
        (None, None),
    ],
)
def test_a_cell_that_a_spreadsheet_would_run_is_none_of_its_formulas(value: object, shown: object) -> None:
    assert text.without_formula(value) == shown


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "rate"),
    [
        (100_000_000_000, 1_000_000, "1,000 TFLOP/s"),
        (50_000_000, 1_000_000, "0.50 TFLOP/s"),
        (49_999_999, 1_000_000, "10 GB/s"),
        (0, 400_000_000, "4,000 GB/s"),
        (0, 999_000, "9.99 GB/s"),
    ],
)
def test_a_rate_is_in_bytes_where_few_operations_come_to_a_byte(flops: int, bytes_moved: int, rate: str) -> None:
    assert text.rate_text(flops, bytes_moved, 100.0) == rate


def test_a_column_of_rates_has_decimals_if_one_of_them_is_low() -> None:
    assert [text.count_decimals(rates) for rates in ([], [10.0, 500], [9.99, 500])] == [0, 0, 2]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (86_399, "24 h"),
        (86_400, "1 d"),
        (864_000, "10 d"),
    ],
)
def test_a_span_is_in_the_largest_unit_that_fits(seconds: float, words: str) -> None:
    assert (text.span_text(seconds), text.ago(seconds)) == (words, f"{words} ago")


def test_times_are_in_utc_wherever_the_worker_is() -> None:
    at = dt.datetime(2026, 11, 20, 1, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert text.moment(at) == "2026-11-19 23:30 UTC"
    assert text.day(at) == "2026-11-19"
    assert text.day(at.date()) == "2026-11-20"
    assert text.source_text("recorded", "lab-7", at) == "recorded on lab-7, 2026-11-19"


def test_a_commit_is_told_by_its_subject_author_and_day() -> None:
    at = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    assert text.commit_text("Tile", "kim", at) == "Tile, kim, 2026-11-20"
    assert text.commit_text("Tile", None, at) == "Tile, 2026-11-20"
    assert text.label_commit(at, "Sixteen letters.") == "11-20 Sixteen letters."
    assert text.label_commit(at, "Seventeen letters") == "11-20 Seventeen lette…"


@pytest.mark.parametrize(
    ("baseline", "label"),
    [
        (None, "0.95x its baseline"),
        ("deepgemm 0.2.5", "0.95x DeepGEMM 0.2.5"),
        ("deepgemm", "0.95x DeepGEMM"),
        ("theirs", "0.95x theirs"),
    ],
)
def test_a_ratio_names_its_baseline(baseline: str | None, label: str) -> None:
    assert text.ratio_to(0.954, baseline) == label


def test_a_text_has_a_first_line_if_it_has_any() -> None:
    assert [text.first_line(each) for each in ("\n why\nhow", " ", "", None)] == ["why", "", "", ""]
    assert text.time_text(1234.56) == "1,234.6 us"
