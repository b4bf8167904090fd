"""Writes and reads recordings, which are files of runs that were measured elsewhere."""
