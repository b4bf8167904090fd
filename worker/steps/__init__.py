"""The steps of jobs, except for judging: submit, compile, prepare, measure, confirm. Each may run twice and writes
every fact once.
"""
