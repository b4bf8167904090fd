"""Implements a worker process apart from its jobs: its name, heartbeat, health checks and `/metrics`."""
