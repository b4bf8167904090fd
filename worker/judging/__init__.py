"""Judges nights: runs the detector on the runs in the database, queues replays, stores verdicts and regressions."""
