"""Serves the web pages, on Streamlit. server.py starts app.py, the frame of the pages. site/ writes static pages."""
