"""Draws the small elements of pages: choices kept in the URL, tables, figures, coloured words, error messages."""
