"""Every read of the pages and the command line: one function, one question, rows as frozen dataclasses."""
