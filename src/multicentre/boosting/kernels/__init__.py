"""Compiled loops over records; what they are given was checked before."""
