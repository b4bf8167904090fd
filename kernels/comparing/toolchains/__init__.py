"""Compares toolchains, and judges whether a later one (head) may replace the one in use (base)."""
