"""Exports and imports recordings. It reads and writes the database and queues judge jobs, and measures nothing."""
