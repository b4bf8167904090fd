"""Names the libraries with which kernels are compared, and launches them on the kernel's own arrays in the same run."""
