"""Flower as the engine: a SuperLink at the coordinator, a SuperNode or an agent at each site."""
