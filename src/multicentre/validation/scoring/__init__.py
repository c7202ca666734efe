"""Scores of fitted models on held-out records, computed from sums over sites."""
