"""Folds over the records of several sites, and which of them keep one person's records together."""
