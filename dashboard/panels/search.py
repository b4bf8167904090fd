"""Finds a page by words of a name, such as a kernel's name, and opens the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import repository
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.text import count_text, plain, short_sha, write_change

KEY = "search"
MOST_SHOWN = 10
SERIES, COMPARE, REGRESSIONS = "views/series.py", "views/compare.py", "views/regressions.py"

_FOCUS = st.components.v2.component(
    "tilewatch_focus",
    js="""export default function () {
  const dialog = document.querySelector("[role=dialog]");
  const go = () => dialog?.querySelector("input")?.focus();
  const later = new MutationObserver(() => { // the box may come after this
    if (!dialog.querySelector("input")) return;
    later.disconnect();
    go();
  });
  dialog?.addEventListener("focus", go);  // the dialog takes the focus when it opens, before this or after it
  if (dialog && !dialog.querySelector("input")) later.observe(dialog, { childList: true, subtree: true });
  go();
  return () => later.disconnect();
}
""",
)
"""A component that moves the keyboard focus into the search box. Streamlit leaves the focus on the dialog."""


@dataclass(frozen=True)
class Place:
    """A page of the dashboard, with the parameters of its address."""

    page: str | StreamlitPage
    parameters: Mapping[str, str] = field(default_factory=dict)


def offer(pages: Sequence[StreamlitPage]) -> None:
    """Shows the search button. Ctrl+K presses this button."""
    if st.button("Search", key=KEY, shortcut="Ctrl+K", type="tertiary"):
        _ask(pages)


@st.dialog("Search")
def _ask(pages: Sequence[StreamlitPage]) -> None:
    with show_errors():
        url = reads.database_url()
        several = repository.has_several(url)
        places = {f"page {page.title}": Place(page) for page in pages}
        places |= list_series_places(reads.series(url), several=several)
        places |= list_regression_places(reads.regressions(url))
        places |= list_commit_places(reads.commits(url, None), several=several)
        typed = st.text_input("A kernel, problem, GPU, commit, regression or page, by any of its words", key="words")
        _FOCUS(key="focus")
        found = find(places, typed)
        for name in found[:MOST_SHOWN]:
            st.page_link(places[name].page, label=plain(name), query_params=dict(places[name].parameters))
        if typed.strip():
            rest = f"; the first {MOST_SHOWN} are shown" if len(found) > MOST_SHOWN else ""
            st.caption(f"{count_text(len(found), 'place')} with these words{rest}.")


def find(places: Iterable[str], typed: str) -> list[str]:
    """Returns the names that contain all typed words; an empty list if nothing is typed."""
    words = typed.lower().split()
    return [name for name in places if words and all(word in name.lower() for word in words)]


def list_series_places(series: pd.DataFrame, *, several: bool) -> dict[str, Place]:
    """Maps search texts, such as "kernel gemm_fp8", to links to the page Series."""
    places: dict[str, Place] = {}
    for row in series.to_dict("records"):
        kernel, problem, gpu_model = str(row["kernel"]), str(row["problem"]), str(row["gpu_model"])
        for words, about in (
            (
                f"series {kernel} {problem} on {row['gpu_name']} ({gpu_model})",
                {"kernel": kernel, "problem": problem, "gpu": gpu_model},
            ),
            (f"kernel {kernel}", {"kernel": kernel}),
            (f"problem {kernel} {problem}", {"kernel": kernel, "problem": problem}),
            (f"GPU {row['gpu_name']}", {"gpu": gpu_model}),
        ):
            place = Place(SERIES, about | repository.name_repository(row, several=several))
            places.setdefault(_name(words, row, several=several), place)
    return dict(sorted(places.items()))


def list_commit_places(commits: pd.DataFrame, *, several: bool) -> dict[str, Place]:
    """Maps the hash and subject of each commit to a link to the page Compare."""
    return {
        _name(f"commit {short_sha(row['sha'])} {row['subject']}", row, several=several): Place(
            COMPARE, {"b": short_sha(row["sha"])} | repository.name_repository(row, several=several)
        )
        for row in commits.to_dict("records")
    }


def list_regression_places(regressions: pd.DataFrame) -> dict[str, Place]:
    """Maps a text about each regression or improvement to a link to the change's page."""
    return {
        f"{row['direction']} #{row['id']} {row['kernel']} {write_change(row['size'])}, {row['state']}: "
        f"{row['cause']}": Place(REGRESSIONS, {"regression": str(row["id"])})
        for row in regressions.to_dict("records")
    }


def _name(words: str, row: Mapping[Any, object], *, several: bool) -> str:
    return f"{words} of {row['repository']}" if several else words
