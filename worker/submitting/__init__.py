"""Turns requests of people, programs and the clock into rows and jobs: nightlies, sweeps, checks, comparisons."""
