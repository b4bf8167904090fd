"""Runs other people's code in child processes: starts them, confines them, gives them folders for what they compile."""
