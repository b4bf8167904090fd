"""Compares toolchains: compiles with all, times code that differs, and judges whether a head may replace the base."""
