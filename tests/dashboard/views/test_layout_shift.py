"""What stands on a page when it is shown for the first time stands there when all of it has come."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.fixtures.drawn import await_drawn
from tilewatch.dashboard.serving import index_page

pytestmark = pytest.mark.browser

SETTLE = Path(__file__).parents[3] / "dashboard" / "serving" / "settle.js"
(LONGEST_MS,) = re.findall(r"const LONGEST_MS = (\d+);", SETTLE.read_text())
WATCH = """(() => {
  window.seen = {};
  const look = () => {
    const main = document.querySelector('.stMainBlockContainer');
    const marks = main ? main.querySelectorAll('h1, h4, h5, [class*="st-key-choice-"], [class*="st-key-plot-"], '
      + '.scoreboard, table.series, .stMetric, [class*="st-key-table-"]') : [];
    [...marks].forEach((mark, number) => {
      const box = mark.getBoundingClientRect();
      if (getComputedStyle(mark).visibility === 'hidden' || box.top > innerHeight || !box.height) return;
      const name = `${mark.tagName} ${mark.className.match?.(/st-key-[\\w-]+/) ?? ''} ${mark.textContent.slice(0, 30)}`;
      (seen[name] ??= new Set()).add(Math.round(box.top));
    });
    requestAnimationFrame(look);
  };
  look();
})()"""
"""Notes at each frame where the landmarks of the first screen stand while they are visible."""
PATIENT = f"""(() => {{
  const wait = setTimeout;
  window.setTimeout = (act, ms, ...given) => wait(act, ms === {LONGEST_MS} ? 1e9 : ms, ...given);
}})()"""
"""After some seconds settle.js shows a page as it is, and on a busy machine it moves then."""
MOVED = "() => Object.entries(seen).filter(([, tops]) => tops.size > 1).map(([name, tops]) => [name, ...tops])"


@pytest.fixture
def address(newcomers_address: str) -> str:
    return newcomers_address


DESK, PHONE = (1440, 900), (400, 800)
EVERY = (*index_page.PAGES, "regressions?regression=1", "checks?check=1", "series?run=5&view=This+run")


@pytest.mark.parametrize(("window", "names"), [(DESK, EVERY), (PHONE, ("", "inbox", "series"))])
def test_nothing_on_the_first_screen_moves_after_it_was_shown(
    page: Any, window: tuple[int, int], names: tuple[str, ...]
) -> None:
    page.set_viewport_size({"width": window[0], "height": window[1]})
    page.add_init_script(PATIENT)
    page.add_init_script(WATCH)
    moved = {}
    for name in names:
        page.goto(f"/{name}")
        await_drawn(page)
        page.wait_for_function("Object.keys(seen).length")
        moved[name] = page.evaluate(MOVED)
    assert {name: what for name, what in moved.items() if what} == {}
