"""Stands in for CuPy, Numba, cuda.core and cuda.bindings on a machine without a GPU. Arrays have shape and type."""
