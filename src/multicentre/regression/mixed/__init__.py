"""Mixed models over several sites, with effects of sites as random."""
