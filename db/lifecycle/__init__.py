"""Changes the state of jobs, messages, alarms, regressions and other rows. The caller opens the session and commits."""
