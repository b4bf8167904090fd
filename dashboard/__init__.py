"""Serves the web pages, on Streamlit. server.py starts app.py, their frame; report.py writes the weekly report."""
