"""Arithmetic on sparse patient tensors: numba and numpy, one thread, no federation and no state."""
