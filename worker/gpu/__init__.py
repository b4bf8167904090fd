"""Gives a worker its GPU, real or simulated, and keeps its quarantine. Only gpu/ and steps/ use kernels/measuring."""
