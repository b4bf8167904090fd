"""Watches operators in their own repository: traces which kernels host code launches, and compiles them."""
