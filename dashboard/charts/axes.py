"""Axes that several figures share. Pure."""

LOG_NUMBERS = {"type": "log", "dtick": "D2", "tickformat": ",~r", "zeroline": False}
"""1, 2 and 5 of each decade, each as a whole number: Plotly alone writes 0.5 and 500 as a small 5."""
