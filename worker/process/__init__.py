"""A worker process without its jobs: name, heartbeat, health checks, `/metrics`. It reads the database and writes the
worker's row."""
