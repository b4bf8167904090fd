"""Gives a worker its GPU, real or simulated, and puts the GPU into quarantine while it is ill."""
