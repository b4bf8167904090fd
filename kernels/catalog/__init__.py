"""Reads the kernels, parameters, problems and configs of a library folder. Library files are loaded only in a child
process. CuPy and the tile compiler are not imported."""
