"""Sums that show the coordinator nothing but the sum, and that outlive the loss of sites."""
