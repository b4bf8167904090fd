"""Child processes: test_child_process.py, test_forked_process.py and test_call_filter.py."""
