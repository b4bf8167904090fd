"""The dashboard as a server: `streamlit run dashboard/server.py`. Serves app.py; knows no page.

`streamlit run dashboard/app.py` shows the same. But that imports what the pages need when the first visitor comes, who
waits for it; here it is there before the port opens.
"""

import importlib

import streamlit as st
from starlette.middleware import Middleware

from tilewatch.dashboard.gc_tuning import tune_memory
from tilewatch.dashboard.preload import Preload

NEEDED = ("pandas", "plotly.graph_objects", "plotly.io", "sqlalchemy.orm", "psycopg", "tilewatch.db.queries.series")

for name in NEEDED:
    importlib.import_module(name)
tune_memory()

app = st.App("app.py", middleware=[Middleware(Preload)])
