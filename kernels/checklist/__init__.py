"""Checks one config against the optimisation guide. Needs no GPU."""
