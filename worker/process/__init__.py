"""What a worker process does besides jobs: name, heartbeat, health checks, `/metrics`. It writes one database row."""
