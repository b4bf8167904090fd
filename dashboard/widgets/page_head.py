"""Begins a page: its title, and beside it a button that says what the page shows."""

import streamlit as st


def show(title: str, about: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(title, anchor=False, width="content")
        with st.popover("What am I looking at?", type="tertiary"):
            st.markdown(about)
