"""Recordings: test_recorded_run.py writes them, test_recording_file.py reads them."""
