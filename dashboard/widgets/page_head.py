"""Draws the top of a page: its title, and a button beside it that explains the page."""

import streamlit as st


def show(title: str, about: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="page-head"):
        st.title(title, anchor=False, width="content")
        with st.popover("What am I looking at?", type="tertiary"):
            st.markdown(about)
