"""The GPU and the tile compiler: sweeping, compiling, checking and timing kernels. Knows no queue and no database."""

HARNESS = "4"
"""Version of how we compile, check and time. Part of the toolchain: raise it when a change here could move a number."""

NAMING = 2
"""Version of code keys and content keys: raise it when they cover more, so that nothing older is taken for new code.

1, until 2026-11-28: content keys lacked opt_level, preview features, libraries and the symbol."""
