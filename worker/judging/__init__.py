"""Judges each night's times: replays suspected changes, and stores verdicts and regressions."""
