"""Gives a worker its GPU, real or simulated, and keeps its quarantine. Only it and steps/ use kernels/measuring."""
