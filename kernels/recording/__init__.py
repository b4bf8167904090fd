"""Writes and reads recordings, files of runs that were measured elsewhere. Touches files and Git; no GPU and no
database.
"""
