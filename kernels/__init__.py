"""Compiles, checks and times kernels on this machine. Uses no queue and no database."""

HARNESS = "4"
"""Version of the code that compiles, checks and times kernels. Raise it if a change could change a measured time."""

NAMING = 2
"""Version of code keys and content keys, hashed into each key. Raise it when keys cover more facts, so that no old key
matches. In version 1, until 2026-11-28, content keys lacked opt_level, preview features, libraries and the symbol."""
