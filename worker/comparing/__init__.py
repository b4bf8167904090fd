"""The steps of a check, which compares two commits, and of a comparison of toolchains, with their reports."""
