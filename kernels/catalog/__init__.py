"""Reads the kernels, parameters, problems and configs of a library folder. Library files are loaded only in a child
process. This package imports neither CuPy nor the tile compiler."""
