"""Serves the first HTML for a browser and the scripts that it needs, and sets the options of the ports."""
