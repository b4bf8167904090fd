"""Finds by which mechanism one version of a kernel is slower than another, from machine code and hardware counters."""
