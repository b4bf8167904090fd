"""Finds alarms and sends messages: to whom, in which words, by which service. It reads verdicts and makes none."""
