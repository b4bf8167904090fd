"""Finds by which mechanism one version of a kernel is slower than another, from its static facts and counters."""
