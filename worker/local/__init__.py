"""Implements `tilewatch up`, `tilewatch demo` and `tilewatch doctor`."""
