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
        Numbers of sites of tables 1 and 2 on the authors' split.
    n_large_sites : tuple of int
        The same for SUPPORT, which is five times as large.
    n_paired_sites : tuple of int
        Numbers of sites on shared splits.
    n_splits : int
        Number of training and test splits.
    most_patients : int
        Patients of a data set in the tables on shared splits; of larger ones, this many are drawn.
    n_repeats : int
        Number of seeds on the authors' split.
    n_rounds : int
        Number of boosting rounds.
    n_network_rounds : int
        Number of boosting rounds with networks; 0 skips networks.
    n_estimators : int
        Number of trees of forests and of the boosted hazard.
    """

    samples: tuple[str, ...]
    n_sites: tuple[int, ...]
    n_large_sites: tuple[int, ...]
    n_paired_sites: tuple[int, ...]
    n_splits: int
    most_patients: int
    n_repeats: int
    n_rounds: int
    n_network_rounds: int
    n_estimators: int

    def sites_of(self, sample: str) -> tuple[int, ...]:
        """Return the numbers of sites of a data set on the authors' split."""
        return self.n_large_sites if sample.startswith("support") else self.n_sites

    def describe(self) -> str:
        """Return the size of the run as text."""
        sites, paired_sites = (" or ".join(map(str, numbers)) for numbers in (self.n_sites, self.n_paired_sites))
        networks = f"{self.n_network_rounds} with networks" if self.n_network_rounds else "no networks"
        return (
            f"{', '.join(self.samples)}. On the authors' split: {sites} sites, {self.n_repeats} seeds. On shared "
            f"splits: at most {self.most_patients} patients of a data set, {paired_sites} sites, {self.n_splits} "
            f"splits into four fifths and one fifth, the same for every method. {self.n_rounds} rounds of boosting "
            f"({networks}), {self.n_estimators} trees. Settings are selected on a fifth of the training patients of "
            "each site."
        )


FULL = Plan(
    samples=("metabric", "support-leaky", "support"),
    n_sites=(1, 4, 8),
    n_large_sites=(4,),
    n_paired_sites=(1, 8),
    n_splits=5,
    most_patients=1500,
    n_repeats=5,
    n_rounds=50,
    n_network_rounds=0,
    n_estimators=100,
)
QUICK = Plan(
    samples=("metabric", "simulated"),
    n_sites=(1, 4),
    n_large_sites=(4,),
    n_paired_sites=(4,),
    n_splits=2,
    most_patients=1500,
    n_repeats=1,
    n_rounds=20,
    n_network_rounds=0,
    n_estimators=100,
)
