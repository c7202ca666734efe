"""Validation of given models: published scores, models of other packages, and fitted models of this one."""
