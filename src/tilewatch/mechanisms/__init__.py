"""Finds by which mechanism one version of a kernel is slower than another, from what compiling and counting showed."""
