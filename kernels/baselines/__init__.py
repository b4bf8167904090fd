"""The libraries that kernels are compared with: their names, and their launches on the same bytes in the same run."""
