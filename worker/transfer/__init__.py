"""Exports and imports recordings, reports and tuned tables."""
