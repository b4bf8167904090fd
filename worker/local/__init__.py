"""Implements `tilewatch up`, `tilewatch demo` and `tilewatch doctor`, the commands about Tilewatch on one machine."""
