"""Implements what a worker process does besides its jobs: its name, heartbeat, health checks and `/metrics`."""
