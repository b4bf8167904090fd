"""Decides whether the times of a series changed, and which replay to ask for next. Uses no database, job or clock."""
