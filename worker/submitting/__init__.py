"""Turns what is submitted into rows and jobs: nightlies, checks, comparisons of toolchains. Needs Git, runs no job."""
