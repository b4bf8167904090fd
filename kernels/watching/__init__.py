"""Traces which kernels the host code of watched operators launches, in the operators' own repository."""
