"""Measures a watched operator, a Python function of another repository that launches cuTile kernels. Another process
runs the operator's host code and describes its launches as data. The measuring process only repeats these launches."""
