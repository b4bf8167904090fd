"""The steps of a nightly's jobs, except for judging: compile, prepare, measure, confirm. Each may run twice and writes
every fact once.
"""
