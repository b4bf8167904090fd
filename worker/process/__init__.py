"""What a worker process is besides its jobs: name, heartbeat, health checks, `/metrics`."""
