"""Cox model with a shared baseline and effects of sites, fixed or random."""
