"""Replaces CuPy, Numba, cuda.core and cuda.bindings where no GPU is. Their arrays then need no GPU memory."""
