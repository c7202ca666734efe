"""Kernels: numerical loops over patients."""
