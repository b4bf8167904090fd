"""Implements `tilewatch up`, `tilewatch demo` and `tilewatch doctor`: Tilewatch on one machine, as child processes."""
