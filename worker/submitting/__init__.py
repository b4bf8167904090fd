"""Turns requests into rows and jobs: nightlies, sweeps, checks, comparisons of toolchains. It needs Git."""
