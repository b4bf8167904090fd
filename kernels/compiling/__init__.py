"""Compiles kernel configs to machine code in child processes. Needs no GPU."""
