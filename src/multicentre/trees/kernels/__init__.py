"""Compiled loops of trees: numba and numpy, one thread, no federation and no state."""
