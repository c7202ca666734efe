"""Engine over Flower: a SuperLink at the coordinator, a SuperNode or an agent at each site."""
