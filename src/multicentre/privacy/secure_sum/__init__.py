"""Secure aggregation: the coordinator can read only sums over sites, also after the loss of sites."""
