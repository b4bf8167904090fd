"""Reads watched repositories: makes clones and checkouts, copies working trees, and orders commits."""
