"""Finds by which mechanism one build of a kernel is slower than another, from what compiling and counting showed."""
