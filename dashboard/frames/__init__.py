"""Reads the database as data frames, and calculates on frames. Draws nothing."""
