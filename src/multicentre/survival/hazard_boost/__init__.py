"""FedHazardBoost: discrete hazards boosted by trees whose histograms are summed over the sites."""
