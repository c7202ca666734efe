"""The class that estimators derive from, their results, and the methods that are installed."""
