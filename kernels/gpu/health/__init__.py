"""Finds out whether a GPU is ill. Contains the rules, the canary, and the process that watches for Xid errors."""
