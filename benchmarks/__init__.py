"""Programs that take the figures of docs/measurements.md."""
