"""Rows with a state: test_jobs.py, test_checks.py, test_regressions.py. worker/cli/test_work.py cancels and retries."""
