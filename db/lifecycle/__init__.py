"""Rows with a state: jobs, messages, alarms, suspicions, regressions, quarantines, and what people do to them.

Every change of such a state is a function here; whoever opened the session commits.
"""
