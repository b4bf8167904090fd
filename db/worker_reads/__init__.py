"""Reads for workers, within the transaction of a step. Reads for pages and the command line are in db/page_reads."""
