"""The table of many series, from made frames: what its cells say, lead to, and are coloured like."""

import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pandas as pd
import pytest

from tests.dashboard.fixtures.app import rows
from tests.dashboard.fixtures.snapshots import pair, series_row
from tilewatch.dashboard.charts import colours, grid
from tilewatch.dashboard.charts.grid import sparkline

B200 = {"gpu_model": "b200", "gpu_name": "NVIDIA B200"}


def test_the_overview_shows_the_ratio_and_a_change_only_where_the_intervals_are_apart() -> None:
    pairs = pair([series_row(1, 1.0), series_row(2, 1.0, **B200)], [series_row(3, 0.9), series_row(4, 1.005, **B200)])
    assert rows(grid.ratio_table(pairs)) == [["", "H200", "B200"], ["gemm_fp8 320x32576x7168", "0.90 ▼+11.1%", "1.00"]]


def test_a_ratio_to_another_baseline_than_deepgemm_names_it() -> None:
    pairs = pair([series_row(1, 1.2)], [series_row(2, 1.2, baseline="attention_cudnn")])
    assert rows(grid.ratio_table(pairs))[1][1] == "1.20 cuDNN"


def test_a_gpu_that_measured_nothing_of_a_problem_has_an_empty_cell() -> None:
    pairs = pair([series_row(1, 1.0)], [series_row(2, 1.0), series_row(3, 0.8, problem="64x64x64", **B200)])
    assert rows(grid.ratio_table(pairs))[1:] == [["64x64x64", "", "0.80"], ["320x32576x7168", "1.00", ""]]


def heads(written: str) -> list[list[str]]:
    """The words of the rows over operators with several problems."""
    return rows(written.replace('<tr class="operator">', "<tr>").replace('<tr><th scope="row"', "<tr hidden>"))[1:]


def test_operators_that_became_slower_come_first_then_those_with_the_lowest_ratio() -> None:
    a = {"kernel": "a_fast", "problem": "1"}
    b, c = {"kernel": "b_slow"}, {"kernel": "c_slower"}
    before = [series_row(1, 1.4, **a), series_row(2, 0.6, **b), series_row(3, 1.0, **c)]
    after = [series_row(4, 1.4, **a), series_row(5, 0.6, **b), series_row(6, 0.9, **c)]
    pairs = pair(before, after)
    assert [line[0].split()[0] for line in rows(grid.ratio_table(pairs))[1:]] == ["c_slower", "b_slow", "a_fast"]


def test_an_operator_of_several_problems_has_a_row_with_its_range_and_its_changes_over_the_worst_problem() -> None:
    before = [series_row(1, 1.0), series_row(2, 0.7, problem="64"), series_row(3, 1.1, problem="32", **B200)]
    after = [series_row(4, 0.9), series_row(5, 0.7, problem="64"), series_row(6, 1.1, problem="32", **B200)]
    written = grid.ratio_table(pair(before, after))
    assert heads(written) == [["gemm_fp8 3 problems", "0.70 to 0.90 ▼1", "1.10"]]
    assert [line[0] for line in rows(written)[1:]] == ["320x32576x7168", "64", "32"], "what became slower, then lowest"
    assert " hidden>" not in written


def test_the_range_of_an_operator_names_what_it_is_to_as_its_cells_do() -> None:
    """The words below the table say that it is DeepGEMM unless a cell names another; often only folded rows show."""
    torch = {"kernel": "softmax", "baseline": "torch_softmax"}
    now = [series_row(1, 2.0, **torch), series_row(2, 1.5, problem="64", **torch), series_row(3, 0.9)]
    both = [*now, series_row(4, 0.8, problem="64")]
    assert heads(grid.ratio_table(pair(both, both))) == [
        ["gemm_fp8 2 problems", "0.80 to 0.90"],
        ["softmax 2 problems", "1.50 to 2.00 PyTorch"],
    ]


def test_a_cell_draws_the_last_ratios_of_its_own_series() -> None:
    pairs = pair([series_row(1, 1.0)], [series_row(2, 1.0), series_row(3, 1.0, problem="64")])
    written = grid.ratio_table(pairs, sparks={("gemm_fp8", "64", "h200", "measured"): [1.0, 0.5]})
    (line,) = re.findall(r"<tr><th.*?>64</th>(.*?)</tr>", written, re.DOTALL)
    assert written.count('class="spark"') == line.count('class="spark"') == 1


@pytest.mark.browser
def test_the_lines_of_many_gpu_models_become_narrower_before_the_table_is_wider_than_the_page(browser: Any) -> None:
    """Eight models with a change each were wider than a window of 1440 px."""
    models = [f"gpu{number}" for number in range(8)]
    before = [series_row(1, 1.0, gpu_model=name, gpu_name=name) for name in models]
    after = [series_row(2, 0.9, gpu_model=name, gpu_name=name) for name in models]
    lines = {("gemm_fp8", "320x32576x7168", name, "measured"): [1.0, 0.9] for name in models}
    page = browser.new_page(viewport={"width": 3000, "height": 600})
    written = grid.ratio_table(pair(before, after), sparks=lines).replace("max-width", "--not")
    page.set_content(f'<style>{grid.STYLE}</style><div class="series-grid">{written}</div>')
    narrow, shown, lines_px = page.evaluate(
        """() => {
            const frame = document.querySelector('.wide'), table = frame.firstChild;
            frame.style.width = 'max-content';
            table.style.width = 'auto';
            for (const head of table.querySelectorAll('th')) head.style.width = 'auto';
            const narrow = frame.clientWidth - 8 * 40;
            frame.style.width = `${narrow}px`;
            table.style.width = '';
            return [narrow, frame.scrollWidth, [...frame.querySelectorAll('.spark')].map(line => line.clientWidth)];
        }"""
    )
    page.close()
    assert shown == narrow
    assert len(lines_px) == 8
    assert min(lines_px) >= 20


@pytest.mark.parametrize(("values", "points"), [([1.0, 0.5], "2,2.0 62,12.0"), ([1.0, 1.0], "2,7.0 62,7.0")])
def test_a_small_line_falls_where_the_values_fall_and_is_flat_in_the_middle_where_they_do_not(
    values: list[float], points: str
) -> None:
    assert f'points="{points}"' in sparkline(values)


def test_noise_of_one_percent_is_no_step_in_a_small_line() -> None:
    first, last = (
        float(point.split(",")[1]) for point in re.findall(r'points="(\S+) (\S+)"', sparkline([1.0, 1.01]))[0]
    )
    assert 0 < first - last < 2, "of the 10 pixels that there are"


def test_one_value_is_no_line() -> None:
    assert sparkline([1.0]) == ""


def test_what_was_not_measured_here_says_so_over_its_column_and_over_its_cell() -> None:
    elsewhere = {"origin": "recorded", "machine": "lab-7"}
    mixed = series_row(3, 0.8, problem="64x64x64", origin="simulated", **B200)
    pairs = pair(
        [series_row(1, 1.0, **elsewhere)], [series_row(2, 1.0, **elsewhere), series_row(4, 1.0, **B200), mixed]
    )
    written = grid.ratio_table(pairs)
    assert rows(written)[0] == ["", "H200 (recorded)", "B200"]
    assert "recorded on lab-7, 2026-11-" in written
    assert "simulated on node-1, 2026-11-" in written


def test_what_a_commit_says_of_itself_stays_text() -> None:
    written = grid.ratio_table(pair([series_row(1, 1.0)], [series_row(2, 1.0, author='"Kim" & Co')]))
    assert "Load &lt;B&gt; through TMA, &quot;Kim&quot; &amp; Co, 2026-11-20" in written
    assert "<B>" not in written


def test_a_cell_tells_the_config_that_was_measured() -> None:
    assert "config tile_m=128&#10;" in grid.ratio_table(pair([series_row(1, 1.0)], [series_row(2, 1.0)])).replace(
        "\n", "&#10;"
    )


def test_a_cell_leads_where_it_is_told_to_and_without_that_nowhere() -> None:
    pairs = pair([series_row(1, 1.0)], [series_row(2, 1.0, kernel="a&b")])
    (link,) = re.findall(
        r'<a href="([^"]+)"', grid.ratio_table(pairs, lambda row: f"trends?gpu=h200&kernel={row['run_id']}")
    )
    assert parse_qsl(urlsplit(link.replace("&amp;", "&")).query) == [("gpu", "h200"), ("kernel", "2")]
    assert "<a" not in grid.ratio_table(pairs)


@pytest.mark.parametrize(
    ("finding", "ratio"),
    [
        ("slower", "0.80 ▼+25.0%"),
        ("not judged yet", "0.80 ▽+25.0%"),
        ("not confirmed", "0.80 ▽+25.0%"),
        ("identical code", "0.80"),
        ("within noise", "0.80"),
    ],
)
def test_only_what_is_claimed_has_a_filled_arrow(finding: str, ratio: str) -> None:
    pairs = pair([series_row(1, 1.0)], [series_row(2, 0.8)]).assign(finding=finding)
    assert rows(grid.ratio_table(pairs))[1][1] == ratio


def test_a_name_breaks_after_its_underscores_on_a_phone() -> None:
    several = [series_row(1, 1.0, kernel="a_b<"), series_row(2, 1.0, kernel="a_b<", problem="1x2")]
    written = grid.ratio_table(pair(several, several))
    assert ">a_<wbr>b&lt;</button>" in written
    assert ".series-grid wbr { display: none; }" in grid.STYLE, "elsewhere a table would be narrower than its names"


@pytest.mark.parametrize(
    ("share", "colour"), [(-1.0, "#000000"), (0.0, "#000000"), (0.25, "#404040"), (0.5, "#808080"), (2.0, "#ffffff")]
)
def test_a_colour_between_two_of_a_scale_is_their_mixture(share: float, colour: str) -> None:
    assert colours.colour_at(((0.0, "#000000"), (0.5, "#808080"), (1.0, "#ffffff")), share) == colour


def test_words_stand_out_on_every_colour_of_the_scales() -> None:
    for scale in (colours.SLOWER_TO_FASTER, colours.GOOD_TO_BAD):
        for step in range(101):
            assert colours.contrast(colours.ink_on(ground := colours.colour_at(scale, step / 100)), ground) >= 4.5


def test_an_empty_frame_is_an_empty_table() -> None:
    none = pair([series_row(1, 1.0)], [series_row(2, 1.0)]).iloc[:0]
    assert rows(grid.ratio_table(pd.DataFrame(none))) == [[""]]
