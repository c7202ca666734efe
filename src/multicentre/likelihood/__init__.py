"""Rounds of all models with a likelihood: Newton steps with sums over sites, and signs of separation."""
