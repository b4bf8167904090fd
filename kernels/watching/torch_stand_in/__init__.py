"""Replaces PyTorch on machines where it is not installed: tensors with a shape, strides and a type, but no values."""
