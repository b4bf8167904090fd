"""Measures a watched operator: a Python function of another repository that launches cuTile kernels."""
