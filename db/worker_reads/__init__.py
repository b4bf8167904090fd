"""Queries for workers, in the transaction of a step. db/page_reads has those for pages and the command line."""
