"""Turns what is submitted into rows and jobs: a nightly, a check, a comparison of toolchains. Needs Git, runs no job."""
