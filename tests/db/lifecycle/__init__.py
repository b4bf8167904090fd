"""Rows with a state: test_jobs.py, test_checks.py and test_regressions.py."""
