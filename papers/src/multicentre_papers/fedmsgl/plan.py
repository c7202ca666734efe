"""Extent of the reproduction: data sets, runs and grids of settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Extent of the reproduction.

    Parameters
    ----------
    samples : tuple of str
        Data sets; the real ones where they are at hand.
    n_runs : int
        Runs of every method, which differ only in their seed.
    n_large_runs : int
        The same of slow methods on more than `small` patients.
    small : int
        Number of patients up to which every run of FedMSGL is a fit; above, runs share one and differ in k-means.
    most_published : int
        Number of patients up to which the slow variants are run: printed formulas and published behaviour.
    most_tuned : int
        Number of patients up to which settings are compared by the labels; 0 for none.
    figure_sample : str
        Data set of Figure 2.
    published_grid : bool
        Whether Figure 2 is drawn for the published behaviour too.
    lambdas, betas : tuple of float
        Values of the penalties and of the weight of the hypergraph in Figure 2.
    n_rounds : int
        Rounds of the convergence curve.
    shares : tuple of float
        Shares of the records that every site lacks.
    sizes : tuple of int
        Neighbours that a site sends per patient.
    """

    samples: tuple[str, ...]
    n_runs: int
    n_large_runs: int
    small: int
    most_published: int
    most_tuned: int
    figure_sample: str
    published_grid: bool
    lambdas: tuple[float, ...]
    betas: tuple[float, ...]
    n_rounds: int
    shares: tuple[float, ...]
    sizes: tuple[int, ...]

    def describe(self) -> str:
        """Return the budget in a sentence or two."""
        return (
            f"{', '.join(self.samples)}; {self.n_runs} runs of every method that draws, {self.n_large_runs} of slow "
            f"ones on more than {self.small} patients, where runs of FedMSGL differ only in k-means. The published "
            f"behaviour up to {self.most_published} patients, settings against labels up to {self.most_tuned}."
        )


FULL = Plan(
    samples=("simulated", "sonar", "bbcsport", "orl", "handwritten", "caltech101_7"),
    n_runs=5,
    n_large_runs=1,
    small=300,
    most_published=600,
    most_tuned=220,
    figure_sample="bbcsport",
    published_grid=False,
    lambdas=(1e-3, 1e-1, 1e1, 1e3),
    betas=(1e-2, 1.0, 1e2),
    n_rounds=6,
    shares=(0.3,),
    sizes=(8, 25, 50),
)
QUICK = Plan(
    samples=("simulated", "sonar", "bbcsport"),
    n_runs=3,
    n_large_runs=1,
    small=300,
    most_published=600,
    most_tuned=220,
    figure_sample="bbcsport",
    published_grid=False,
    lambdas=(1e-1, 1e1, 1e3),
    betas=(1e-2, 1.0, 1e2),
    n_rounds=4,
    shares=(0.3,),
    sizes=(8, 50),
)
