"""The dashboard's frame: `streamlit run dashboard/app.py`. The pages are in views/; this knows only their names."""

import streamlit as st

from dashboard.trouble import told

# Emoji and not Material icons: those make the page fetch a font from outside.
PAGES = (
    st.Page("views/overview.py", title="Overview", icon="🏠", default=True),
    st.Page("views/trends.py", title="Trends", icon="📈"),
    st.Page("views/sweeps.py", title="Sweeps", icon="🔍"),
    st.Page("views/jobs.py", title="Jobs & workers", icon="⚙️"),
)

st.set_page_config(page_title="Tilewatch", page_icon="🟩", layout="wide")
page = st.navigation(PAGES, position="top")
with told():
    page.run()
