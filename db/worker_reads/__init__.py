"""Reads for workers: small, exact, and inside the transaction of a step.

Reads for pages and the command line are in db/page_reads. Nothing here writes.
"""
