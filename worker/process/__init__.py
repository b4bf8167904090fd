"""Implements the parts of a worker process besides its jobs: its name, heartbeat, health checks and `/metrics`."""
