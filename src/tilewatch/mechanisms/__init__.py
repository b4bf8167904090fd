"""Finds why one version of a kernel is slower, from machine code and hardware counters."""
