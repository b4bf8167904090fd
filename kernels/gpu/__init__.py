"""Works on one GPU: makes arrays, launches and times kernels, and reads telemetry and health. Code that uses the GPU
runs in child processes. It does not decide which config is tried next; kernels/measuring decides that."""
