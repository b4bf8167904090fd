"""Runs library kernels as plain Python: a NumPy stand-in for `cuda.tile`, and a comparison with a GPU."""
