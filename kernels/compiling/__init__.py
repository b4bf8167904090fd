"""Compiles configs into cubins with their static facts, in child processes. Needs the tile compiler; no GPU."""
