"""Comparison of persons between sites via sums that reveal no single person, for audits and counts of duplicates."""
