"""Checks one config against the optimisation guide, from source, compiler remarks and cubin. Needs no GPU."""
