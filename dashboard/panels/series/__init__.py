"""Draws the parts of the page Series: its chart, the run beside it, and the views below."""
