"""Runs the jobs that compare two commits or several toolchains, and writes their reports."""
