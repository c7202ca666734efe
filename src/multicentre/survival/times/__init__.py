"""Times on a grid that all sites share: tables of events, curves, step functions."""
