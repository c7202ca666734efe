"""Forests of trees that the sites grow alone: FedSurF and its sampling schemes, and the union of local forests."""
