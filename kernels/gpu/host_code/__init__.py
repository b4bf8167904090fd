"""Measures a watched operator's host code from outside of its process: its launches are recorded as data by the process
that runs it, and launched again by the process that measures.
"""
