"""Answers in one sentence whether anything is wrong; below it, what changed and how the last night went."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import changes, differences, reads
from tilewatch.dashboard.widgets import badges
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.lifecycle.regressions import OPEN
from tilewatch.nightlies import NightlyTimes
from tilewatch.text import count_text, plain


@dataclass(frozen=True)
class LastNight:
    """The newest nightly of one GPU model."""

    gpu: str
    state: str
    detail: str


@dataclass(frozen=True)
class Counts:
    """What changed since a moment: `words` say it, `maybe_slower` series look slower and no verdict says so yet."""

    words: str
    maybe_slower: int


def count(pairs: pd.DataFrame, since: str) -> Counts:
    """`pairs` have one row per series, with its finding."""
    maybe = pairs["finding"].isin(differences.OPEN) & (pairs["change"] < 0)
    compared = int(pairs["change"].notna().sum())
    if not compared:
        return Counts(f"No series has a newer run to compare since {since}, of {len(pairs):,} series", 0)
    of = f"{compared:,} of " if compared < len(pairs) else ""  # the others have no run on one of the two sides
    words = f"{differences.count_findings(pairs)} since {since}, in {of}{len(pairs):,} series"
    return Counts(words, int(maybe.sum()))


def sentence(
    waiting: int, unowned: int, counts: Counts | None, nights: Sequence[LastNight], alarms: int
) -> tuple[str, str]:
    """Returns the colour of the answer and its words. `waiting` regressions are open, `unowned` of them nobody's."""
    unsure = [words for state in UNWELL for words in _write_nights(state, [n.gpu for n in nights if n.state == state])]
    if alarms:
        unsure.append(f"{count_text(alarms, 'alarm')} {_are(alarms)} open")
    if counts is not None and counts.maybe_slower:
        unsure.append(f"{counts.maybe_slower:,} series may be slower")
    if waiting:
        owner = f", {unowned:,} without an owner" if unowned else ""
        return badges.BADLY, _joined(
            f"{count_text(waiting, 'confirmed regression')} {_are(waiting)} open{owner}", unsure
        )
    if counts is None:
        return badges.UNSURE, _joined("Nothing is measured yet", unsure)
    if unsure:
        return badges.UNSURE, f"No regression is open, but {' and '.join(unsure)}."
    return badges.WELL, "Nothing is wrong: no regression is open."


UNWELL = ("late", "missing", "failed")


def _write_nights(state: str, gpus: Sequence[str]) -> list[str]:
    """One clause for all GPU models, whose names stand below the sentence; empty without any."""
    if len(gpus) > 1:
        return [f"the last nights of {count_text(len(gpus), 'GPU model')} are {state}"]
    return [f"the last night of {gpu} is {state}" for gpu in gpus]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _joined(first: str, others: Sequence[str]) -> str:
    return "; ".join([first, *others]) + "."


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show(url: str, repository: str, counts: Counts | None) -> None:
    """`counts` is None where nothing is measured. Runs again by itself."""
    with show_errors():
        everything = reads.regressions(url)
        waiting = everything[(everything["direction"] == "regression") & everything["state"].isin(OPEN)]
        waiting = waiting[waiting["repository"] == repository]
        nights = _list_nights(url, repository)
        colour, words = sentence(
            len(waiting), int(waiting["owner"].isna().sum()), counts, nights, len(reads.alarms(url))
        )
        st.markdown(f"#### :{colour}[{words}]")
        if counts is not None:
            st.text(f"{counts.words} of {repository}")
        if len(waiting):
            st.page_link("views/regressions.py", label="To the open regressions")
        shown = [
            f":{badges.NIGHTS[night.state]}-badge[{plain(night.gpu)}: {night.state} ({plain(night.detail)})]"
            for night in nights
        ]
        st.markdown("**Last night** " + (" ".join(shown) or "no nightly was submitted yet"))


def _list_nights(url: str, repository: str) -> list[LastNight]:
    now, times = dt.datetime.now(dt.UTC), NightlyTimes()
    newest = reads.last_nights(url)
    newest = newest[newest["repository"] == repository]
    nights = []
    for _, night in newest.sort_values("gpu_name").iterrows():
        state = changes.night_state(night, newest["night"].max(), now, times)
        detail = night["state"] if state in ("failed", "running") else night["night"]
        nights.append(LastNight(night["gpu_name"].removeprefix("NVIDIA "), state, str(detail)))
    return nights
