"""Lists what a library folder offers: kernels, problems, configs. Loads library files only in a child process; imports
neither CuPy nor the tile compiler.
"""
