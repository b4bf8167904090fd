"""The GPU of a worker, real or simulated, and its quarantine. Only this room and steps/ use kernels/measuring."""
