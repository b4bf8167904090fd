"""The steps of a check (two commits compared) and of a comparison of toolchains, with their reports."""
