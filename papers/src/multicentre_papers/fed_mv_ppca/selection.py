"""Figure 3: WAIC and the error of held-out rows over the number of latent dimensions, on SD over three centres."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from multicentre.datasets import LabelledMultiView, simulate_sd
from multicentre.federation import Federation
from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre_papers.fed_mv_ppca.folds import Fold, hold_out
from multicentre_papers.fed_mv_ppca.measure import NO_MINIMUM
from multicentre_papers.fed_mv_ppca.plan import Cell, Plan
from multicentre_papers.fed_mv_ppca.samples import generator

CELL = Cell("IID", 3)
# Latent dimensions of the simulated data, as in the authors' notebook.
SIMULATED_WITH = 5


@dataclass(frozen=True)
class Choice:
    """One candidate in one repetition.

    Parameters
    ----------
    repetition : int
        From 0.
    n_components : int
        Latent dimensions q.
    waic : float
        Over the training rows of all centres; lower is better.
    mae_test : float
        Mean absolute reconstruction error of held-out rows, columns in the unit interval.
    """

    repetition: int
    n_components: int
    waic: float
    mae_test: float


def choose_dimensions(plan: Plan, report: Callable[[int], None]) -> list[Choice]:
    """Fit every candidate in every repetition on the first fold, with the columns of a view divided by one number.

    One scale a column would leave unequal noise within a view, which more dimensions would then explain.
    """
    choices = []
    for repetition in range(plan.selection_repetitions):
        labelled = simulate_sd(generator(repetition, 0))
        fold = next(hold_out(labelled, CELL, plan.n_folds, repetition))
        for q in plan.selection_candidates:
            choices.append(_try(fold, labelled, q, repetition))
            report(len(choices))
    return choices


def picked(choices: list[Choice]) -> list[int]:
    """Return the number of latent dimensions with the lowest WAIC in every repetition."""
    best: dict[int, Choice] = {}
    for choice in choices:
        held = best.get(choice.repetition)
        if held is None or choice.waic < held.waic:
            best[choice.repetition] = choice
    return [best[repetition].n_components for repetition in sorted(best)]


def mean_by_candidate(choices: list[Choice]) -> dict[int, tuple[float, float]]:
    """Return WAIC and held-out error of every candidate, averaged over repetitions."""
    return {
        q: (
            float(np.mean([choice.waic for choice in choices if choice.n_components == q])),
            float(np.mean([choice.mae_test for choice in choices if choice.n_components == q])),
        )
        for q in sorted({choice.n_components for choice in choices})
    }


def _try(fold: Fold, labelled: LabelledMultiView, q: int, repetition: int) -> Choice:
    federation = Federation.in_process({name: one.data for name, one in fold.training.items()}, policy=NO_MINIMUM)
    # A view of 8 columns bounds q at 7 unless small views are allowed: the joint model does not need the limit.
    model = FedMvPPCA(q, waic=True, small_views=True, random_state=repetition).fit(federation)
    rebuilt = model.reconstruct(fold.held_out.data)
    errors = [
        np.abs(fold.held_out.data.array(view) - rebuilt[view]) / np.ptp(labelled.data.array(view), axis=0)
        for view in labelled.data.views
    ]
    assert model.waic_ is not None  # requested
    return Choice(repetition, q, model.waic_, float(np.hstack(errors).mean()))
