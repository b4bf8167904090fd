"""Traces which kernels the host code of watched operators launches. The host code lies in its owner's repository."""
