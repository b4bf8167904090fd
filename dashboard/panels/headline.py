"""Shows in one sentence whether anything needs a person, and the state of the newest nightly runs."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from tilewatch.dashboard.frames import changes, inbox, reads
from tilewatch.dashboard.frames.inbox import Inbox
from tilewatch.dashboard.widgets import badges
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.nightlies import NightlyTimes
from tilewatch.text import plain, write_uncounted


@dataclass(frozen=True)
class LastNight:
    """The newest nightly of a GPU model. `repository` is empty if there is only one repository."""

    repository: str
    gpu: str
    state: str
    detail: str


def sentence(found: Inbox, *, is_measured: bool) -> tuple[str, str]:
    """Returns the headline's colour and sentence."""
    words = f"{inbox.write_sentence(found)}."
    if found.count(inbox.REGRESSION):
        return badges.BADLY, words
    if found.items:
        return badges.UNSURE, words
    return (badges.WELL, words) if is_measured else (badges.UNSURE, "Nothing is measured yet.")


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show(url: str) -> None:
    """Shows the headline. It updates itself while the page is open."""
    with show_errors():
        found = reads.inbox(url)
        colour, words = sentence(found, is_measured=not reads.series(url).empty)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### :{colour}[{words}]", width="content")
            st.page_link("views/inbox.py", label="Open the inbox")
        nights = " ".join(_write_night(night) for night in list_nights(url))
        apart = write_uncounted(len(found.examples), len(found.recorded))
        st.markdown(f"**Last nights** {nights or 'no nightly was submitted yet'}" + (f"  \n{apart}" if apart else ""))


def _write_night(night: LastNight) -> str:
    of = f" of {night.repository}" if night.repository else ""
    return f":{badges.NIGHTS[night.state]}-badge[{plain(night.gpu + of)}: {night.state} ({plain(night.detail)})]"


def list_nights(url: str) -> Sequence[LastNight]:
    now, times = dt.datetime.now(dt.UTC), NightlyTimes()
    newest, watched = reads.last_nights(url), reads.watched(url)
    several = newest["repository"].nunique() > 1
    nights = []
    for _, night in newest.sort_values(["repository", "gpu_name"]).iterrows():
        own = newest["repository"] == night["repository"]
        # The checkout of Tilewatch is not watched any more when the first repository was added.
        last = newest.loc[own, "night"].max() if night["repository"] in (watched or [night["repository"]]) else None
        state = changes.night_state(night, last, now, times)
        detail = night["state"] if state in ("failed", "running") else night["night"]
        name = night["gpu_name"].removeprefix("NVIDIA ")
        nights.append(LastNight(night["repository"] if several else "", name, state, str(detail)))
    return nights
