"""Draws the top of a page: its title, its explanation, and warnings about simulated GPUs or a missing sandbox."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges
from tilewatch.text import plain


def show(title: str, about: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="page-head"):
        st.title(title, anchor=False, width="content")
        with st.popover("What am I looking at?", type="tertiary"):
            st.markdown(about)


def mark_simulated(url: str, repository: str) -> None:
    """Shows a note if a repository's newest runs are simulated."""
    if reads.has_simulated_runs(url, repository):
        st.markdown(f":{badges.UNSURE}-badge[simulated] No GPU measured the newest numbers.")


def mark_not_confined() -> None:
    alarms = reads.alarms(reads.database_url())
    hosts = [] if alarms.empty else sorted(set(alarms.loc[alarms["kind"] == "not_confined", "subject"]))
    if hosts:
        named = ", ".join(plain(host) for host in hosts)
        st.markdown(
            f":{badges.UNSURE}-badge[not confined] On {named} commits' code may do more than it should: see its alarm."
        )
