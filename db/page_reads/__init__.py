"""Reads for pages and the command line; their rows are frozen dataclasses.

Reads for workers are in db/worker_reads. Nothing here writes.
"""
