"""Turns what people, programs and the clock ask for into rows and jobs: nightlies, sweeps, checks, comparisons."""
