"""Secure aggregation: sums over sites of which the coordinator can read the sum only, robust to the loss of sites."""
