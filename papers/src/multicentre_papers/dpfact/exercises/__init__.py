"""The exercises, one module a figure or table of the paper."""
