"""Reads the problems of an operator, from patterns, from lists, and from files with weights."""
