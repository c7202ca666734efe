"""Scores of models that predict numbers."""
