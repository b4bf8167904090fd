"""Reads the problems of an operator from patterns, lists and files."""
