"""Size of a run: data sets, splits, sites, rounds and trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    Parameters
    ----------
    samples : tuple of str
        Data sets; unavailable ones are skipped.
    n_sites : tuple of int
        Numbers of sites of tables 1 and 2.
    n_splits : int
        Number of training and test splits of METABRIC and of simulated patients.
    n_large_splits : int
        Number of splits of SUPPORT, which is five times as large.
    n_repeats : int
        Number of seeds on the authors' split.
    n_rounds : int
        Number of boosting rounds.
    n_network_rounds : int
        Number of boosting rounds with networks; 0 skips networks.
    n_estimators : int
        Number of trees of forests and of the boosted hazard.
    n_shifted_splits : int
        Number of splits in the table of heterogeneous sites.
    """

    samples: tuple[str, ...]
    n_sites: tuple[int, ...]
    n_splits: int
    n_large_splits: int
    n_repeats: int
    n_rounds: int
    n_network_rounds: int
    n_estimators: int
    n_shifted_splits: int

    def splits_of(self, sample: str) -> int:
        """Return the number of splits of a data set."""
        return self.n_large_splits if sample.startswith("support") else self.n_splits

    def describe(self) -> str:
        """Return the size of the run as text."""
        sites = ", ".join(map(str, self.n_sites))
        networks = f"{self.n_network_rounds} with networks" if self.n_network_rounds else "no networks"
        return (
            f"{', '.join(self.samples)}; {sites} sites; {self.n_splits} splits into four fifths and one fifth "
            f"({self.n_large_splits} of SUPPORT), the same for every method; {self.n_rounds} rounds of boosting "
            f"({networks}), {self.n_estimators} trees. Settings are selected on a fifth of the "
            "training patients of each site."
        )


FULL = Plan(
    samples=("metabric", "support-leaky", "support", "simulated"),
    n_sites=(1, 4, 8),
    n_splits=4,
    n_large_splits=1,
    n_repeats=2,
    n_rounds=50,
    n_network_rounds=4,
    n_estimators=200,
    n_shifted_splits=2,
)
QUICK = Plan(
    samples=("metabric", "simulated"),
    n_sites=(1, 4),
    n_splits=2,
    n_large_splits=1,
    n_repeats=1,
    n_rounds=20,
    n_network_rounds=0,
    n_estimators=100,
    n_shifted_splits=1,
)
