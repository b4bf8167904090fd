"""Measures a watched operator apart from its host code: the process that runs it describes its launches as data, and
the measuring process repeats them."""
