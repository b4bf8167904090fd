"""Answers whether a toolchain B may take the place of a toolchain A: compiles with both, times what differs, judges."""
