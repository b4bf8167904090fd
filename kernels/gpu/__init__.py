"""Launches and times kernels on one GPU, and reads its telemetry and health."""
