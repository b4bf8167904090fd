"""Runs other people's code in child processes: starts them, confines them, and keeps what they compile."""
