"""Splits into training and held-out patients, and their distribution over sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split

from multicentre.data.concatenate import concatenate
from multicentre.data.survival import SurvivalData

# Seed of the published scripts.
AUTHORS_SEED = 42
# Share of held-out patients, as in the published scripts.
HELD_OUT = 0.2


@dataclass(frozen=True)
class Split:
    """Training and held-out patients by site.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
    held : mapping of str to SurvivalData
        Held-out patients by site.
    """

    sites: Mapping[str, SurvivalData]
    held: Mapping[str, SurvivalData]

    @property
    def test(self) -> SurvivalData:
        """Held-out patients of all sites."""
        return concatenate(dict(self.held))


def at_most(data: SurvivalData, n_patients: int) -> SurvivalData:
    """Return all patients, or this number of them, drawn at random with a fixed seed."""
    if len(data) <= n_patients:
        return data
    return data.take(np.sort(np.random.default_rng(0).choice(len(data), n_patients, replace=False)))


def hold_out(data: SurvivalData, seed: int) -> tuple[SurvivalData, SurvivalData]:
    """Split off a fifth of the patients, stratified by event if every code occurs twice."""
    fewest = np.unique(data.event, return_counts=True)[1].min()
    groups = data.event if fewest > 1 else None
    training, test = train_test_split(np.arange(len(data)), test_size=HELD_OUT, random_state=seed, stratify=groups)
    return data.take(training), data.take(test)


def as_the_authors(data: SurvivalData) -> tuple[SurvivalData, SurvivalData]:
    """Return the training and test patients of the published scripts' split."""
    training, test = train_test_split(np.arange(len(data)), test_size=HELD_OUT, random_state=AUTHORS_SEED)
    return data.take(training), data.take(test)


def share_out(training: SurvivalData, n_sites: int, seed: int) -> dict[str, SurvivalData]:
    """Distribute training patients at random over sites of equal size."""
    order = np.random.default_rng([seed, n_sites]).permutation(len(training))
    return {f"site-{place + 1}": training.take(rows) for place, rows in enumerate(np.array_split(order, n_sites))}


def inside(sites: Mapping[str, SurvivalData], seed: int) -> Split:
    """Split the training patients of every site for the selection of settings."""
    parts = {name: hold_out(data, seed) for name, data in sites.items()}
    return Split({name: part[0] for name, part in parts.items()}, {name: part[1] for name, part in parts.items()})
