"""Takes PyTorch's place where it is not installed: tensors with a shape, strides and a type, and no values."""
