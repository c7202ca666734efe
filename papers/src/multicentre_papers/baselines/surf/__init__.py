"""Forests of trees grown at single sites: FedSurF and its sampling schemes."""
