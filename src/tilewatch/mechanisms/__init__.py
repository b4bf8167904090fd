"""Finds by which mechanism one version of a kernel is slower than another, from their static facts and counters."""
