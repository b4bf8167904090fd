"""Exports and imports recordings, reports and tuned tables. It uses the database and queues judge jobs, but no GPU."""
