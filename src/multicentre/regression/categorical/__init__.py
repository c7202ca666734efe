"""Regression of outcomes with three or more classes: multinomial for unordered, ordinal for ordered classes."""
