"""A differentially private fit."""

from __future__ import annotations


def asked_steps(mechanism: str) -> frozenset[str]:
    """Return the names of the steps that a private fit may ask of a site."""
    return frozenset()
