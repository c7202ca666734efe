"""Which patients train, which are held out, and at which site they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split

from multicentre.data.concatenate import concatenate
from multicentre.data.survival import SurvivalData

AUTHORS_SEED = 42
HELD_OUT = 0.2


@dataclass(frozen=True)
class Split:
    """Training patients by site, and those held out of them.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
    held : mapping of str to SurvivalData
        Those held out, by site.
    """

    sites: Mapping[str, SurvivalData]
    held: Mapping[str, SurvivalData]

    @property
    def test(self) -> SurvivalData:
        """All who are held out."""
        return concatenate(dict(self.held))


def hold_out(data: SurvivalData, seed: int) -> tuple[SurvivalData, SurvivalData]:
    """Return four fifths of the patients and the rest, with the same share of events in both where that can be."""
    fewest = np.unique(data.event, return_counts=True)[1].min()
    groups = data.event if fewest > 1 else None
    kept, held = train_test_split(np.arange(len(data)), test_size=HELD_OUT, random_state=seed, stratify=groups)
    return data.take(kept), data.take(held)


def as_the_authors(data: SurvivalData) -> tuple[SurvivalData, SurvivalData]:
    """Return the published scripts' one split into training and test patients, by its seed."""
    kept, held = train_test_split(np.arange(len(data)), test_size=HELD_OUT, random_state=AUTHORS_SEED)
    return data.take(kept), data.take(held)


def share_out(training: SurvivalData, n_sites: int, seed: int) -> dict[str, SurvivalData]:
    """Return training patients at sites of equal size, by chance."""
    order = np.random.default_rng([seed, n_sites]).permutation(len(training))
    return {f"site-{place + 1}": training.take(rows) for place, rows in enumerate(np.array_split(order, n_sites))}


def inside(sites: Mapping[str, SurvivalData], seed: int) -> Split:
    """Return a split of the training patients, site by site, for the choice between settings."""
    parts = {name: hold_out(data, seed) for name, data in sites.items()}
    return Split({name: part[0] for name, part in parts.items()}, {name: part[1] for name, part in parts.items()})
