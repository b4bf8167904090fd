"""Shows a new visitor five hints on the Overview, one at a time."""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent

CALLOUTS = (
    (
        '[data-testid="stMarkdownContainer"] h4',
        "This sentence says how many things need a person, over all repositories.",
    ),
    (
        ".scoreboard, table.series",
        "How far each GPU model is from DeepGEMM, and below it every kernel on each problem: over 1.00 is faster. A "
        "click on a number opens its trend.",
    ),
    ('a[href$="/compare"]', "Compare shows what one commit changed, in all series."),
    (
        'a[href$="/inbox"]',
        "The inbox has what needs a person: regressions that a replay confirmed, alarms, improvements.",
    ),
    (".st-key-search button", "Search finds kernels, problems, commits and GPUs on every page. Ctrl+K opens it."),
)
"""The CSS selector of the element that each hint is about, and the hint's text."""

_SHOWN = st.components.v2.component(
    "tilewatch_first_visit",
    html='<div class="first-visit"></div>',
    css=(_HERE / "first_visit.css").read_text(encoding="utf-8"),
    js=(_HERE / "first_visit.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def show() -> None:
    _SHOWN(key="first-visit", data={"callouts": [list(each) for each in CALLOUTS]})
