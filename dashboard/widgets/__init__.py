"""The small parts of pages: choices that are kept in the URL, tables, figures, colours of words, error messages."""
