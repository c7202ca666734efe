"""Small simulated event tensors for tests: a nonnegative low-rank rate, Poisson counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multicentre.data import EventTensor


@dataclass(frozen=True)
class Events:
    """A simulated tensor and what it was drawn from."""

    tensor: EventTensor
    factors: dict[str, np.ndarray]
    memberships: np.ndarray

    def sites(self, n_sites: int) -> dict[str, EventTensor]:
        """Return the patients cut into sites one after the other."""
        parts = np.array_split(np.arange(len(self.tensor)), n_sites)
        return {f"site-{number}": self.tensor.take(part) for number, part in enumerate(parts)}


def simulate_events(
    n_patients: int = 300, sizes: Sequence[int] = (9, 12), rank: int = 3, seed: int = 0, rate: float = 1.0
) -> Events:
    """Draw counts around sum_r a_r b_r c_r ... with factors of few codes each."""
    rng = np.random.default_rng(seed)
    names = ("procedure", "diagnosis", "drug")[: len(sizes)]
    factors = {}
    for mode, size in zip(names, sizes, strict=True):
        factor = rng.random((size, rank)) * (rng.random((size, rank)) < 0.35)
        factor[np.arange(rank), np.arange(rank)] = 1.0
        factors[mode] = factor / np.linalg.norm(factor, axis=0)
    memberships = rng.gamma(0.6, 2.0, (n_patients, rank))
    letters = "jkl"[: len(sizes)]
    rates = np.einsum(
        "ir," + ",".join(f"{letter}r" for letter in letters) + f"->i{letters}", memberships, *factors.values()
    )
    counts = rng.poisson(rate * rates)
    places = np.argwhere(counts > 0)
    odds = memberships[:, 0] - np.median(memberships[:, 0])
    outcomes = (rng.random(n_patients) < 1 / (1 + np.exp(-odds))).astype(np.int8)
    codes = {mode: [f"{mode[:2]}:{code:03d}" for code in range(size)] for mode, size in zip(names, sizes, strict=True)}
    tensor = EventTensor(
        places,
        counts[tuple(places.T)].astype(np.float64),
        codes,
        n_patients=n_patients,
        ids=[f"patient-{row}" for row in range(n_patients)],
        outcomes=outcomes,
    )
    return Events(tensor, factors, memberships)
