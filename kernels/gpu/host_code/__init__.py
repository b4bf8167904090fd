"""Measures a watched operator without running the operator's host code in the measuring process. Another process runs
the host code and describes its launches as data. The measuring process repeats these launches."""
