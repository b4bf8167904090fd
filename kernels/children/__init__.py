"""Starts and sandboxes the child processes that run other people's code."""
