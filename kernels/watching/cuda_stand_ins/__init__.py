"""Stands in for CuPy, Numba, cuda.core and cuda.bindings where no GPU is. The stand-ins' arrays have shape and type."""
