"""Reads for pages and the command line; their rows are frozen dataclasses.

Reads for workers are in db/step_queries. Nothing here writes.
"""
