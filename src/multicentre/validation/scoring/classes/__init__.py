"""Scores of classifiers, from predicted classes and class probabilities."""
