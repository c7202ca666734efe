"""Compiled loops of boosting: numba and numpy, one thread, no federation and no state."""
