"""Reads what a library folder holds: kernels, parameters, problems, configs. Loads library files only in a child
process and imports neither CuPy nor the tile compiler.
"""
