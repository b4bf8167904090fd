"""Draws the small parts of pages: choices kept in the URL, tables, figures, coloured words, error messages."""
