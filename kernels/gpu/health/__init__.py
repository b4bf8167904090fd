"""Finds out whether a GPU is ill: the rules, the canary, and the process that watches for Xid errors."""
