"""Scores of models that name classes or give each class a chance."""
