"""Replaces CuPy, Numba, cuda.core and cuda.bindings on machines without a GPU."""
