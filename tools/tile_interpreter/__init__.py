"""Runs library kernels as plain Python with a NumPy stand-in for `cuda.tile`, and compares them with a GPU."""
