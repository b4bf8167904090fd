"""Answers whether a head toolchain may replace a base toolchain: compiles with both, times what differs, judges."""
