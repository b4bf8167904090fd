"""Finds alarms, writes messages to people, and sends them."""
