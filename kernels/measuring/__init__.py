"""Measures kernels by sending requests to child processes that use the GPU."""
