"""Launches other libraries on the same arrays as our kernels, for comparison."""
