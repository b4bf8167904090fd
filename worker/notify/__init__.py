"""Finds alarms, and writes and sends messages to people: to whom, in which words, by which service."""
