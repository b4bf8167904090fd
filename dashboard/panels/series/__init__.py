"""Draws the sections of the page Series: the chart, the run beside the chart, and the views below it."""
