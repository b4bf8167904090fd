"""Serves the web pages with Streamlit. server.py starts app.py, which draws every page. site/ writes static pages."""
