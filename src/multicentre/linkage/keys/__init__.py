"""How an audit and a count of duplicates compare people between sites: by sums that tell of no person."""
