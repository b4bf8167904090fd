"""Exports and imports recordings, reports and tuned tables. It uses the database and queues judge jobs; no GPU."""
