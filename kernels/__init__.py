"""The GPU and the tile compiler: sweeping, compiling, checking and timing kernels. Knows no queue and no database."""

HARNESS = "4"
"""Version of how we compile, check and time. Part of the toolchain: raise it when a change here could move a number."""
