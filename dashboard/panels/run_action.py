"""How a person acts from a page: their name, the button, and the sentence about what came of it.

Every action gets the name of who did it; the functions in db write it down with the time.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard import rights
from tilewatch.db.lifecycle.actions import NoSuchWork
from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
from tilewatch.db.session import session

REFUSALS = (NoSuchWork, NoSuchRegression, NotPossible, ValueError)
OUTCOME = "said"


def find_actor() -> str | None:
    """The name to act with, or None with the reason on the page. Where nobody signs in, people say who they are."""
    claimed = ""
    of = rights.find_rules()
    if of.anonymous == "act" and rights.find_rights().who is None:
        claimed = st.text_input(
            "Your name", key="who", max_chars=80, placeholder="who does this", help="Written down with every action."
        )
    found = rights.find_rights(claimed)
    if not found.act:
        st.caption(found.why_not)
        return None
    return found.who


def show_outcome() -> None:
    """The sentence about the last action, once."""
    if OUTCOME in st.session_state:
        good, sentence = st.session_state.pop(OUTCOME)
        (st.success if good else st.warning)(sentence)


def run(url: str, act: Callable[[Session], Any], done: str) -> None:
    """Act in one transaction and draw the page again; what the data forbids becomes a sentence."""
    try:
        with session(url) as opened:
            said = act(opened)
    except REFUSALS as refused:
        st.session_state[OUTCOME] = (False, _sentence(str(refused)))
    else:
        st.session_state[OUTCOME] = (True, _sentence(said if isinstance(said, str) else done))
    st.cache_data.clear()
    st.rerun()


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
