"""Judges nights: runs the detector on what the database holds, queues replays, and stores verdicts and regressions."""
