"""Replaces CuPy, Numba, cuda.core and cuda.bindings on a machine without a GPU. Its arrays have shapes and types."""
