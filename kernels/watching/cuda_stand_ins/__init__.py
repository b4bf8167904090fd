"""Stands in for CuPy, Numba, cuda.core and cuda.bindings where no GPU is: their arrays have shape, strides and type."""
