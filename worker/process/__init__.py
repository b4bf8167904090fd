"""Runs a worker process besides its jobs: name, heartbeat, health checks, `/metrics`. It writes one database row."""
