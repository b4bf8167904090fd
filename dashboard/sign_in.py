"""The door of the dashboard: who may come in, and the button to sign in or out. What they may do is in people.py."""

import streamlit as st

from tilewatch.dashboard import rights


def admit() -> bool:
    """Whether this visitor may see a page; otherwise what to do stands here instead of it."""
    try:
        of = rights.find_rules()
    except rights.BadRules as wrong:
        st.error(str(wrong))
        return False
    visitor = rights.find_rights()
    if of.sign_in:
        _sign(visitor)
    if not visitor.browse:
        st.title("Tilewatch", anchor=False)
        st.info(visitor.why_not)
    return visitor.browse


def _sign(visitor: rights.Rights) -> None:
    with st.container(horizontal=True, horizontal_alignment="right"):
        if visitor.who is None:
            if st.button("Sign in", key="sign-in"):
                st.login()
        else:
            st.caption(visitor.who)
            if st.button("Sign out", key="sign-out"):
                st.logout()
