"""Forests of trees grown at single sites: FedSurF and its sampling schemes, and the union of local forests."""
