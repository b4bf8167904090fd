"""Stands in for PyTorch where it is not installed. Its tensors have a shape, strides and a type, but no values."""
