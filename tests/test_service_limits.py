"""Every text keeps its service's limit, and says how much of it is left out."""

from hypothesis import given
from hypothesis import strategies as st

from tilewatch.service_limits import LINE_CHARACTERS, fit_lines, shorten

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
