"""Reads of the database as data frames, and calculations on frames. Draws nothing."""
