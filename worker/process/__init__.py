"""Implements a worker process except its jobs: its name, heartbeat, health checks and `/metrics`."""
