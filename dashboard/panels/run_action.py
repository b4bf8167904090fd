"""Runs an action that a person takes on a page. Every action is stored with the person's name."""

from collections.abc import Callable
from typing import Any

import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard import rights
from tilewatch.db.lifecycle.actions import NoSuchWork
from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
from tilewatch.db.session import session
from tilewatch.text import without_controls

REFUSALS = (NoSuchWork, NoSuchRegression, NotPossible, ValueError)
OUTCOME = "outcome"


def find_actor() -> str | None:
    """Returns the visitor's name. If the visitor may not act, shows the reason and returns None."""
    claimed = ""
    rules = rights.find_rules()
    if rules.anonymous == "act" and rights.find_rights().who is None:
        claimed = st.text_input(
            "Your name", key="who", max_chars=80, placeholder="who does this", help="Stored with every action."
        )
    visitor = rights.find_rights(without_controls(claimed))
    if not visitor.act:
        st.caption(visitor.why_not)
        return None
    return visitor.who


def show_outcome() -> None:
    """Shows the outcome of the last action, but only once."""
    if OUTCOME in st.session_state:
        good, sentence = st.session_state.pop(OUTCOME)
        (st.success if good else st.warning)(sentence)


def run(url: str, act: Callable[[Session], Any], done: str = "") -> None:
    """Runs `act` in one transaction, and draws the page again with the outcome."""
    try:
        with session(url) as opened:
            outcome = act(opened)
    except REFUSALS as refused:
        st.session_state[OUTCOME] = (False, _sentence(str(refused)))
    else:
        st.session_state[OUTCOME] = (True, _sentence(outcome if isinstance(outcome, str) else done))
    st.cache_data.clear()
    st.rerun()


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
