"""Reads the kernels, problems and configs of a library folder."""
