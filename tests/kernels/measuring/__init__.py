"""Sweeps and launches on a simulated GPU: test_measure.py, test_sweep.py and test_resume.py."""
