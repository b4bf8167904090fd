"""Queries for workers. Queries for pages and the command line are in db/page_reads."""
