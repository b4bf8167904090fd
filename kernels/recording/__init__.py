"""Writes and reads recordings, files of runs that were measured elsewhere. Uses no GPU and no database."""
