"""Survival curves and tests that compare them."""
