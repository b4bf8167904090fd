"""Reads watched repositories: clones, checkouts of commits, working trees, and the order of commits."""
