"""Compares two sides of a library on one GPU before a merge: what changed, by how much, and how sure that is."""
