"""Changes the state of rows: jobs, messages, alarms, suspicions, regressions, quarantines, and requests of people.
Every change of such a state is a function here. The caller, who opened the session, commits."""
