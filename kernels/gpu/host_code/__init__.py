"""Measures a watched operator without running its host code in the process that measures: another process runs the host
code and describes its launches as data, which the measuring process repeats."""
