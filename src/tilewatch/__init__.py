"""Tilewatch as one installed package. Its four parts are the folders of the same names at the top of the repository.

They are links here, so that `import tilewatch.kernels` works from a checkout, an editable install and a wheel alike,
and a repository under watch may have a folder `kernels` of its own.
"""
