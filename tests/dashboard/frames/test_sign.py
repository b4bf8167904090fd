"""One sign everywhere: minus is less time, and the word beside it says faster. Drawn numbers, the same each time."""

import random
import re

import pytest

from tests.dashboard.fixtures.app import rows
from tests.dashboard.fixtures.snapshots import pair, series_row
from tilewatch.dashboard.charts import colours, grid, hover
from tilewatch.dashboard.charts.sorted_changes import draw_sorted_changes
from tilewatch.dashboard.frames import differences
from tilewatch.text import write_change

DRAWS = 25


@pytest.mark.parametrize("with_ratio", [True, False])
def test_number_arrow_colour_and_word_say_the_same_of_each_change(*, with_ratio: bool) -> None:
    draw = random.Random(7)
    seen = set()
    for number in range(DRAWS):
        before_us, after_us = draw.uniform(50, 200), draw.uniform(50, 200)
        ratios = (100 / before_us, 100 / after_us) if with_ratio else (None, None)
        sides = [
            [series_row(run, ratio, median_us=us, low_us=us * 0.99, high_us=us * 1.01)]
            for run, ratio, us in ((2 * number, ratios[0], before_us), (2 * number + 1, ratios[1], after_us))
        ]
        (row,) = pair(*sides).to_dict("records")
        if row["finding"] not in differences.CLAIMS:
            continue
        seen.add(row["finding"])
        slower = after_us > before_us
        assert row["change"] == pytest.approx(after_us / before_us - 1, abs=1e-6)
        assert row["finding"] == (differences.SLOWER if slower else differences.FASTER)
        words = write_change(row["change"])
        assert re.fullmatch(r"\+\d+\.\d % time, slower" if slower else r"-\d+\.\d % time, faster", words)
        lines = "\n".join(hover.series_lines(row))
        assert words in lines
        marks = draw_sorted_changes(pair(*sides).assign(where="")).data[0]
        assert marks.marker.color[0] == colours.VERDICTS["regression" if slower else "improvement"]
        assert (marks.x[0] > 0) == slower
        if with_ratio:
            assert ("▼+" if slower else "▲-") in rows(grid.ratio_table(pair(*sides)))[1][1]
            own = f"ours {100 * (after_us / before_us - 1):+.1f} % time"
            assert own in lines
    assert seen == {differences.FASTER, differences.SLOWER}


def test_what_rounds_to_nothing_has_no_word() -> None:
    assert write_change(-0.0001) == write_change(0.0) == "+0.0 % time"
