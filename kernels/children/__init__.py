"""Runs other people's code in child processes: starts and confines them, and caches the code that they compile."""
