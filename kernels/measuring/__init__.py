"""Decides what a GPU measures next. The GPU itself is used by child processes."""
