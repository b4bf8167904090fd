"""Functions that change the state of rows: jobs, messages, alarms, suspicions, regressions, quarantines and actions.
Such a state is changed nowhere else. The caller opens the session and commits."""
