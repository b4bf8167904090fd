"""Draws the small elements of pages, such as choices, tables, figures and error messages."""
