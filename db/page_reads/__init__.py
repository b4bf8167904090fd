"""Reads for pages and the command line. Reads for workers are in db/worker_reads."""
