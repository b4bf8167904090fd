"""Sends and receives jobs, holds their leases, waits out outages, and queues the jobs that follow."""
