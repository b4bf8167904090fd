"""Draws the larger parts of pages. Each takes what a page picked, reads the data and draws it. Knows no URL."""
