"""Serves the web pages, on Streamlit. server.py starts app.py, their frame. site/ writes pages that need no server."""
