"""Reads watched repositories: clones, checkouts of whole commits, working trees, commits. Knows no job and no row."""
