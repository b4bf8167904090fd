"""Replaces PyTorch where it is not installed, with tensors that have no values."""
