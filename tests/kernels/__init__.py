"""Kernels: test_wrong_results.py and test_cheats.py hold that nothing wrong and no cheat is timed."""
