"""Publishes the database as pages that need no server: a site, and the weekly report."""

from streamlit.logger import set_log_level

set_log_level("error")  # it warns for each cached read that there is no server
