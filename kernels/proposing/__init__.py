"""Proposes watch files for a repository that has none: runs what calls its kernels, and writes the calls."""
