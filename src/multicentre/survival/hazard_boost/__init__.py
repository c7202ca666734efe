"""FedHazardBoost: gradient boosting of discrete hazards with histograms summed over the sites."""
