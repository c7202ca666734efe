"""How well a fitted model does on records that it has not seen, by sums over the sites that hold them."""
