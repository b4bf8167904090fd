"""Draws the frame of every page: sign-in, navigation, errors."""

import streamlit as st

from tilewatch.dashboard import sign_in
from tilewatch.dashboard.panels import search
from tilewatch.dashboard.serving.index_page import LOGO, STYLE
from tilewatch.dashboard.widgets import address, page_head, plots
from tilewatch.dashboard.widgets.errors import show_errors

# Pages have no icons: Material icons load a font from outside, and emoji show empty boxes without an emoji font.
PAGES = (
    st.Page("views/overview.py", title="Overview", default=True),
    st.Page("views/inbox.py", title="Inbox"),
    st.Page("views/series.py", title="Series"),
    st.Page("views/compare.py", title="Compare"),
    st.Page("views/toolchains.py", title="Toolchains"),
    st.Page("views/checks.py", title="Checks"),
    st.Page("views/jobs.py", title="Jobs & workers"),
    # One click deeper: parts of the inbox and of a comparison.
    st.Page("views/regressions.py", title="Regressions", visibility="hidden"),
    st.Page("views/architectures.py", title="Architectures", visibility="hidden"),
)

page = st.navigation(PAGES, position="top")
st.set_page_config(page_title=f"{page.title} - Tilewatch", page_icon=LOGO, layout="wide")
st.logo(LOGO)
if st.get_option("server.baseUrlPath"):  # Streamlit's own HTML is served there
    st.html(f"<style>{STYLE}</style>")
with show_errors():
    if sign_in.admit():
        address.show_whole()
        page_head.mark_not_confined()
        plots.forget_drawn()
        search.offer(PAGES)
        page.run()
        plots.choose_picture_format()
