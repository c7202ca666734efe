"""Settings of the reproduction: sizes, ranks, rounds, privacy budgets and seeds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Extent of the reproduction.

    Parameters
    ----------
    n_patients : int
        Patients of the planted set with MIMIC-III's codes.
    n_private_patients : int
        The same for figure 3 (b), as noise needs more patients.
    n_cms_patients : int
        Patients of the planted set with CMS's codes.
    samples : tuple of str
        Data sets of the learning curves; the real ones where they are at hand.
    seeds : tuple of int
        Of data, starts and splits together; figures are means and standard deviations over them.
    curve_rank : int
        Phenotypes of the learning curves.
    curve_epochs : int
        Rounds or passes of the learning curves; a third of them for the set of CMS's size.
    max_iter : int
        Rounds of every other fit of DPFact over all cells.
    trip_rounds : int
        Rounds of every other fit of TRIP.
    rank : int
        Phenotypes of every other fit, as many as are planted.
    ranks : tuple of int
        Ranks of table 4.
    n_sites : tuple of int
        Numbers of sites of tables 2, 3 and 8.
    epsilons : tuple of float
        Of figure 3 (b), at a delta of 1e-5.
    all_mechanisms : bool
        Whether figure 3 (b) takes in the repaired descent over patients next to noised least squares.
    sparsities : tuple of float
        ``mu_0`` of figure 4.
    n_splits : int
        Splits of the patients of the MIMIC-III demo.
    """

    n_patients: int
    n_private_patients: int
    n_cms_patients: int
    samples: tuple[str, ...]
    seeds: tuple[int, ...]
    curve_rank: int
    curve_epochs: int
    max_iter: int
    trip_rounds: int
    rank: int
    ranks: tuple[int, ...]
    n_sites: tuple[int, ...]
    epsilons: tuple[float, ...]
    all_mechanisms: bool
    sparsities: tuple[float, ...]
    n_splits: int

    def describe(self) -> str:
        """Return the budget in a sentence or two."""
        cms = (
            f" ({self.cms_epochs} for the {self.n_cms_patients:,} patients with CMS's codes)"
            if "cms-like" in self.samples
            else ""
        )
        return (
            f"Planted events of {self.n_patients:,} patients with {self.rank} phenotypes over 202 procedures and 316 "
            f"diagnoses, for Figure 3 (b) of {self.n_private_patients:,}; seeds {', '.join(map(str, self.seeds))}, "
            f"each with separate data, starts and splits. Learning curves at rank {self.curve_rank} over "
            f"{self.curve_epochs} rounds{cms}; elsewhere at most {self.max_iter} rounds of DPFact and "
            f"{self.trip_rounds} of TRIP."
        )

    @property
    def cms_epochs(self) -> int:
        """Rounds of the learning curves of the set of CMS's size."""
        return max(1, self.curve_epochs // 3)


FULL = Plan(
    n_patients=4000,
    n_private_patients=20_000,
    n_cms_patients=3000,
    samples=("mimic-like", "cms-like", "synthetic", "mimic3_demo", "synpuf500"),
    seeds=(0, 1, 2, 3, 4),
    curve_rank=20,
    curve_epochs=10,
    max_iter=5,
    trip_rounds=30,
    rank=20,
    ranks=(10, 20, 40),
    n_sites=(1, 5, 10),
    epsilons=(0.5, 1.0, 2.0, 4.0, 8.0),
    all_mechanisms=False,
    sparsities=(0.0, 0.02, 0.06, 0.1, 0.3),
    n_splits=10,
)
QUICK = Plan(
    n_patients=2000,
    n_private_patients=4000,
    n_cms_patients=2000,
    samples=("mimic-like", "synthetic", "mimic3_demo"),
    seeds=(0, 1),
    curve_rank=20,
    curve_epochs=8,
    max_iter=4,
    trip_rounds=30,
    rank=20,
    ranks=(10, 20, 30),
    n_sites=(1, 5, 10),
    epsilons=(1.0, 4.0, 16.0),
    all_mechanisms=False,
    sparsities=(0.0, 0.02, 0.06, 0.1, 0.3),
    n_splits=5,
)
