"""Draws the larger parts of pages. Each gets its page's choices, reads the data and draws it. Knows no URL."""
