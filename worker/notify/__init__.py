"""Finds alarms, and writes and sends the messages to people. It decides who gets them, their words and their
service."""
