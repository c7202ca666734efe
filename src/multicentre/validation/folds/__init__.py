"""Folds over the records of several sites, with strategies that keep all records of a person in one fold."""
