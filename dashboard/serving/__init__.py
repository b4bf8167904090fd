"""Serves the HTML that a browser loads first and the scripts that it needs, and sets the options of the ports."""
