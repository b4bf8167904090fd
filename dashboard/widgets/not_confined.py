"""Warns on every page if commits' code runs without a sandbox. Such code can fake results and damage the machine."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges
from tilewatch.text import plain


def mark_page() -> None:
    alarms = reads.alarms(reads.database_url())
    hosts = [] if alarms.empty else sorted(alarms.loc[alarms["kind"] == "not_confined", "subject"])
    if hosts:
        named = ", ".join(plain(host) for host in hosts)
        st.markdown(
            f":{badges.UNSURE}-badge[not confined] On {named} commits' code may do all that its worker's user may."
        )
