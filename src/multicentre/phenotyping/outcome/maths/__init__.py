"""Logistic regression and ranking from sums, as functions of arrays."""
