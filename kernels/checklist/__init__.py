"""Checks one config against the optimisation guide, from its source, compiler remarks and cubin. Needs no GPU."""
