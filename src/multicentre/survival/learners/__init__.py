"""Weak learners: fits of weighted patients of one site, on the shared grid."""
