"""Benchmarks that need an NVIDIA GPU."""
