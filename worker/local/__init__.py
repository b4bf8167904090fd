"""`tilewatch up` and `tilewatch doctor`: everything on one machine, as child processes."""
