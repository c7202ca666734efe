"""Boosting's equations as functions of arrays: errors, votes, weights, losses, and what sums alone can tell."""
