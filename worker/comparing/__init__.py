"""The steps of a comparison of two commits (a check) or of two toolchains, and the report that each of them stores."""
