"""Finds alarms, writes messages to people, and sends them by mail and other services, webhooks or forges."""
