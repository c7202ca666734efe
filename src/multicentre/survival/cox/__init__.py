"""Proportional hazards over sites, exact by sums."""
