"""Queries for the pages and for the command line. The queries for workers are in db/worker_reads."""
