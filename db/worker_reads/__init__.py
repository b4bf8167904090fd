"""Queries for workers, in the transaction of a step. Queries for pages and the command line are in db/page_reads."""
