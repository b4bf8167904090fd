"""The dashboard as a server: `streamlit run dashboard/server.py`. Serves app.py; knows no page.

`streamlit run dashboard/app.py` shows the same. But that imports what the pages need when the first visitor comes, who
waits for it; here it is there before the port opens.
"""

import ctypes
import importlib
import sys

import streamlit as st
from starlette.middleware import Middleware

from dashboard.ahead import Ahead

NEEDED = ("pandas", "plotly.graph_objects", "plotly.io", "sqlalchemy.orm", "psycopg", "db.queries")
M_ARENA_MAX, ARENAS = -8, 2
"""Streamlit runs each view in a thread of its own, and glibc keeps the memory of up to eight threads per core apart."""

if sys.platform == "linux":
    # musl has no mallopt, and needs none.
    getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)

for name in NEEDED:
    importlib.import_module(name)

app = st.App("app.py", middleware=[Middleware(Ahead)])
