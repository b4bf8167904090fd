"""Uses the GPU and the tile compiler: sweeps, compiles, checks and times kernels. Uses no queue and no database."""

HARNESS = "4"
"""Version of how kernels are compiled, checked and timed. Raise it if a change here could change a measured time."""

NAMING = 2
"""Version of code keys and content keys. Raise it when keys cover more, so that stored results are not taken for those
of new code. Until 2026-11-28 it was 1: content keys lacked opt_level, preview features, libraries and the symbol."""
