"""Number of examples of a property, where it is not the profile's own."""

from hypothesis import settings

# What `examples` counts in: the number of the full profile, see conftest.py at the root.
FULL = 100


def examples(n_examples: int) -> settings:
    """Return settings for so many examples in the full profile, and for as much fewer in the quick one."""
    return settings(max_examples=max(2, n_examples * settings().max_examples // FULL))
