"""Watches operators in their own repository: traces which kernels their host code launches, and compiles these."""
