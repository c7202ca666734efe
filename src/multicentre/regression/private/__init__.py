"""Differentially private linear and logistic regression from noised sums with declared bounds."""
