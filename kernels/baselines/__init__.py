"""Names the libraries that kernels are compared with, and launches them on the same bytes in the same run."""
