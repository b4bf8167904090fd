"""Finds mistakes in library files and watch files before a GPU is used: `tilewatch validate`."""
