"""Runs other people's code in child processes. Starts and sandboxes these, and caches the code that they compile."""
