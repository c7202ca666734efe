"""Pairs of tasks by group. Each module has a function ``pairs(quick)`` that yields them."""
