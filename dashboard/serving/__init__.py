"""Serves the HTML and scripts that a browser loads first, and sets the options of the ports."""
