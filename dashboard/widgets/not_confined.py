"""Warns on every page if commits' code is confined less than it can be. It may fake results or damage the machine."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import badges
from tilewatch.text import plain


def mark_page() -> None:
    alarms = reads.alarms(reads.database_url())
    hosts = [] if alarms.empty else sorted(set(alarms.loc[alarms["kind"] == "not_confined", "subject"]))
    if hosts:
        named = ", ".join(plain(host) for host in hosts)
        st.markdown(
            f":{badges.UNSURE}-badge[not confined] On {named} commits' code may do more than it should: see its alarm."
        )
