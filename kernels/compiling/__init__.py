"""Compiles configs to cubins with their static facts, in child processes. Needs the tile compiler, but no GPU."""
