"""Sends the messages of jobs, holds their leases, waits out outages, and queues the jobs that follow a step."""
