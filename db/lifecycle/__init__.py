"""Changes the state of rows: jobs, messages, alarms, suspicions, regressions, quarantines and actions. No other package
changes such a state. The caller opens the session and commits."""
