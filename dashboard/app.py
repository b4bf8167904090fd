"""Draws the frame of every page: sign-in, navigation, errors. Knows the pages of views/ only by name."""

import streamlit as st

from tilewatch.dashboard import sign_in
from tilewatch.dashboard.panels import search
from tilewatch.dashboard.serving.index_page import LOGO
from tilewatch.dashboard.widgets import address, not_confined, plots
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

# Corrects Streamlit's style. It leaves much space above the first line, and makes pages narrow on large screens. The
# contrast of its captions is 4.2 and of its code colours 2.8 to 4.4; WCAG wants 4.5. Only the text of a caption is
# faded, because fading links too left them 4.4. An expander's heading fades to a third while its page reruns, but can
# still be clicked, so it stays opaque. In a narrow window a filter's options wrap instead of scrolling out of sight,
# and filters below each other get normal spacing. The search stands beside the title if the page names leave no room
# for it.
STYLE = (
    f"""<style>{plots.STYLE}</style>"""
    + """<style>
.stMainBlockContainer {padding-top: 4.2rem; padding-bottom: 2rem; max-width: 1600px;}
[data-testid="stCaptionContainer"] {opacity: 1; color: color-mix(in srgb, currentcolor 78%, transparent);}
[data-testid="stCaptionContainer"] :not(a) {color: inherit;}
.stCode code .token.token {color: inherit;}
.stExpander summary {opacity: 1 !important;}
.stButtonGroup [role="radiogroup"] {flex-wrap: wrap; overflow: visible;}
@media (max-width: 640px) {.stHorizontalBlock {row-gap: 1rem;}}
.st-key-filters {display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); align-items: end;}
.st-key-search {position: fixed; top: 0.7rem; right: 1rem; width: auto; z-index: 999991;}
@media (min-width: 768px) and (max-width: 900px) {.st-key-search {top: 4.6rem;}}
.st-key-search kbd, .st-key-search :has(> kbd) {color: inherit; opacity: 1;}
</style>"""
)

page = st.navigation(PAGES, position="top")
st.set_page_config(page_title=f"{page.title} - Tilewatch", page_icon=LOGO, layout="wide")
st.logo(LOGO)
st.html(STYLE)
with show_errors():
    if sign_in.admit():
        address.show_whole()
        not_confined.mark_page()
        plots.forget_drawn()
        search.offer(PAGES)
        page.run()
        plots.choose_picture_format()
        plots.load_plotly_early()
