"""Which covariate to cut folds by: what the sites count of each, and a pilot inside every site."""
