"""Draws the larger sections of pages. Each panel gets the page's choices, reads the data and draws them."""
