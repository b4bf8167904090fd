"""Sends the messages of jobs, keeps the leases of jobs, waits out outages, and queues the jobs that follow a step."""
