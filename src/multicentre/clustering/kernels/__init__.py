"""Compiled loops over samples."""
