"""Shows the button to sign in or out, and refuses visitors who may not see the pages."""

import streamlit as st

from tilewatch.dashboard import rights


def admit() -> bool:
    """Returns whether this visitor may see the pages, and shows the reason if not."""
    try:
        rules = rights.find_rules()
    except rights.BadRules as wrong:
        st.error(str(wrong))
        return False
    visitor = rights.find_rights()
    if rules.sign_in:
        _show_sign_in(visitor)
    if not visitor.browse:
        st.title("Tilewatch", anchor=False)
        st.info(visitor.why_not)
    return visitor.browse


def _show_sign_in(visitor: rights.Rights) -> None:
    with st.container(horizontal=True, horizontal_alignment="right"):
        if visitor.who is None:
            if st.button("Sign in", key="sign-in"):
                st.login()
        else:
            st.caption(visitor.who)
            if st.button("Sign out", key="sign-out"):
                st.logout()
