"""Pooled records of all hospitals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.tabledata import TableData
from multicentre.datasets import SimulatedDuplicates

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pooled:
    """Records of all hospitals.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n,)
    person : array of shape (n,)
        Person of every record.
    site : array of int64, shape (n,)
        Index of every record's hospital.
    """

    X: Floats
    y: Floats
    person: NDArray[np.str_]
    site: Integers

    def take(self, rows: NDArray[np.bool_]) -> Pooled:
        """Return some of the records."""
        return Pooled(self.X[rows], self.y[rows], self.person[rows], self.site[rows])


def pool(sites: Mapping[str, TableData], person: str | None = None) -> Pooled:
    """Concatenate the records of all sites.

    Parameters
    ----------
    sites : mapping of str to TableData
    person : str, optional
        Identifier column of the person; by default, every record is a different person.
    """
    data = list(sites.values())
    sizes = [len(one) for one in data]
    people = np.arange(sum(sizes)).astype(str)
    if person is not None:
        people = np.array([name for one in data if one.identifier for name in one.identifier.column(person)])
    return Pooled(
        np.concatenate([one.X for one in data]),
        np.concatenate([one.y for one in data]).astype(np.float64),
        people,
        np.repeat(np.arange(len(data)), sizes),
    )


def pool_simulated(simulated: SimulatedDuplicates) -> tuple[Pooled, Pooled]:
    """Return all records, and those without duplicates."""
    everything = pool(simulated.sites, "person")
    return everything, everything.take(np.concatenate(list(simulated.original.values())))
