"""Draws the larger sections of pages. Each panel reads its own data."""
