"""Tables of the reproduction."""
