"""Programs that take the figures of docs/develop/measurements.md."""
