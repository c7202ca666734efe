"""The figures and tables of the reproduction."""
