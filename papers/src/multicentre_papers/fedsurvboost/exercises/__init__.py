"""The tables of the reproduction."""
