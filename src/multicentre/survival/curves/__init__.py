"""Survival curves and log-rank tests."""
