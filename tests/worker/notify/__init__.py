"""Messages to people and forges: test_outbox.py sends them, and test_mend_tables.py opens pull requests."""
