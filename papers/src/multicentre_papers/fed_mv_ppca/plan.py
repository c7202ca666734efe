"""Plan of the reproduction: cells of Table 2, repetitions, folds, and the budget of every method."""

from __future__ import annotations

from dataclasses import dataclass

from multicentre.datasets.scenarios import Scenario

# Adam's step for the auto-encoders. At 1e-3, the default of mcvae, their errors are larger after the same steps.
LEARNING_RATE = 1e-2


@dataclass(frozen=True)
class Cell:
    """A scenario and a number of centres."""

    scenario: Scenario
    n_sites: int

    def __str__(self) -> str:
        return f"{self.scenario}, {self.n_sites} centre{'' if self.n_sites == 1 else 's'}"


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    Parameters
    ----------
    cells : tuple of Cell
        Scenarios and numbers of centres.
    samples : tuple of str
        Data sets of the table, by name.
    n_repetitions : int
        Repetitions of the cross-validation; each draws simulated data, centres and folds again.
    n_folds : int
        Folds inside every centre.
    n_folds_used : int
        Number of folds that are held out in turn.
    n_rounds : int
        Rounds of the published algorithm; at most as many of the other modes in each of their loops.
    n_local_iter : int
        Local iterations per round.
    autoencoder_rounds : int
        Rounds of the auto-encoders, each of `n_local_iter` steps of Adam.
    selection_repetitions : int
        Repetitions of the choice of q.
    selection_candidates : tuple of int
        Numbers of latent dimensions tried.
    """

    cells: tuple[Cell, ...]
    samples: tuple[str, ...]
    n_repetitions: int
    n_folds: int
    n_folds_used: int
    n_rounds: int
    n_local_iter: int
    autoencoder_rounds: int
    selection_repetitions: int
    selection_candidates: tuple[int, ...]

    @property
    def n_fits(self) -> int:
        """Fits of one method in one cell."""
        return self.n_repetitions * self.n_folds_used

    def describe(self) -> str:
        """Return the budget in a sentence."""
        folds = f"{self.n_repetitions} repetition(s) of {self.n_folds}-fold cross-validation inside each centre"
        if self.n_folds_used < self.n_folds:
            folds += f" ({self.n_folds_used} of the {self.n_folds} folds held out)"
        return (
            f"{folds}; Fed-mv-PPCA (paper) {self.n_rounds} rounds of {self.n_local_iter} local iterations, "
            f"the other modes until they settle and at most {self.n_rounds} rounds per loop; VAE and mc-VAE linear, "
            f"{self.autoencoder_rounds} rounds of {self.n_local_iter} full-batch Adam steps at learning rate "
            f"{LEARNING_RATE:g}."
        )


FULL = Plan(
    cells=(
        *(Cell("IID", n) for n in (1, 3, 6)),
        *(Cell("G", n) for n in (3, 6)),
        *(Cell("K", n) for n in (3, 6)),
        *(Cell("G/K", n) for n in (3, 6)),
    ),
    samples=("sd", "wisconsin"),
    n_repetitions=5,
    n_folds=3,
    n_folds_used=1,
    n_rounds=100,
    n_local_iter=15,
    autoencoder_rounds=100,
    selection_repetitions=5,
    selection_candidates=tuple(range(1, 8)),
)
QUICK = Plan(
    cells=(Cell("IID", 1), Cell("IID", 3), Cell("G", 3), Cell("K", 3), Cell("G/K", 3)),
    samples=("sd", "wisconsin"),
    n_repetitions=2,
    n_folds=3,
    n_folds_used=1,
    n_rounds=30,
    n_local_iter=15,
    autoencoder_rounds=20,
    selection_repetitions=1,
    selection_candidates=(3, 4, 5, 6, 7),
)
