"""The mathematics of both algorithms, at a site and at the coordinator."""
