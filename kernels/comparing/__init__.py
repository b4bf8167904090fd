"""Compares two versions of a library on one GPU before a merge: what changed, and by how much."""
