"""Shows a newcomer five callouts on the Overview, one at a time; the browser keeps that they were read or skipped."""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent

CALLOUTS = (
    ('[data-testid="stMarkdownContainer"] h4', "This sentence says whether anything is wrong."),
    (
        "table.series",
        "Each row is a kernel on one problem. Over 1.00 it is faster than its baseline. A click on a number opens its "
        "trend over the commits.",
    ),
    ('a[href$="/compare"]', "Compare shows what one commit changed, in all series."),
    ('a[href$="/regressions"]', "Regressions are changes that a replay of the old and the new machine code confirmed."),
    (".st-key-search button", "Search finds kernels, problems, commits and GPUs on every page. Ctrl+K opens it."),
)
"""The element of the page that each is about, as a CSS selector, and its words."""

_SHOWN = st.components.v2.component(
    "tilewatch_first_visit",
    html='<div class="first-visit"></div>',
    css=(_HERE / "first_visit.css").read_text(encoding="utf-8"),
    js=(_HERE / "first_visit.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def show() -> None:
    _SHOWN(key="first-visit", data={"callouts": [list(each) for each in CALLOUTS]})
