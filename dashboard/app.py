"""Draws the frame of every page: sign-in, navigation, errors. The pages are in views/; this knows only their names."""

import streamlit as st

from tilewatch.dashboard import sign_in
from tilewatch.dashboard.panels import search
from tilewatch.dashboard.serving.index_page import LOGO
from tilewatch.dashboard.widgets import address, not_confined, plots
from tilewatch.dashboard.widgets.errors import show_errors

# No icons: Material icons make the page fetch a font from outside, and emoji are empty boxes without an emoji font.
PAGES = (
    st.Page("views/overview.py", title="Overview", default=True),
    st.Page("views/inbox.py", title="Inbox"),
    st.Page("views/series.py", title="Series"),
    st.Page("views/compare.py", title="Compare"),
    st.Page("views/toolchains.py", title="Toolchains"),
    st.Page("views/checks.py", title="Checks"),
    st.Page("views/jobs.py", title="Jobs & workers"),
    # One click below: a part of the inbox, of a comparison.
    st.Page("views/regressions.py", title="Regressions", visibility="hidden"),
    st.Page("views/architectures.py", title="Architectures", visibility="hidden"),
)

# Streamlit leaves much space above the first line of every page, and makes pages narrow on large screens. The contrast
# of its captions is 4.2, that of the colours in its code 2.8 to 4.4; WCAG wants 4.5. A caption is not made transparent
# as a whole: its links were then at 4.4. The heading of an expander fades to a third while its page reads itself again;
# it can be pressed all that time, so its contrast counts. In a narrow window the choices of a filter take several
# lines, where Streamlit lets them scroll out of sight, and filters below each other have the space of other lines. The
# search stands beside the title where the names of the pages leave no room for it.
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
