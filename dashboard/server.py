"""Serves app.py: `streamlit run dashboard/server.py`. It finishes the imports before it opens the port."""

import importlib
import sys

import streamlit as st
from starlette.middleware import Middleware

from tilewatch.dashboard.serving.index_page import Guard, list_routes
from tilewatch.dashboard.serving.socket_options import send_at_once
from tilewatch.nightlies import BadSettings, NightlyTimes
from tilewatch.processes import tune_memory

NEEDED = ("pandas", "plotly.graph_objects", "plotly.io", "sqlalchemy.orm", "psycopg", "tilewatch.db.page_reads.series")

try:
    NightlyTimes.load()  # otherwise a page would end in a stack trace
except BadSettings as error:
    sys.exit(f"tilewatch: {error}")

for name in NEEDED:
    importlib.import_module(name)
tune_memory()
send_at_once()

app = st.App("app.py", routes=list_routes(), middleware=[Middleware(Guard)])
