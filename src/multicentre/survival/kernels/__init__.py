"""Compiled loops over patients."""
