"""Finds out whether a GPU is ill: its signs, the canary that looks for them, and the process that watches for Xids."""
