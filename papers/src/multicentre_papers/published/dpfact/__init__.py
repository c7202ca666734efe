"""DPFact as it was published."""
