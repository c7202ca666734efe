"""The tables and figures of the reproduction."""
