"""Imputation of a view that was never measured: the breast cancer samples of TCGA, of whom 70 lack the protein view.

Two centres share the 150 patients with protein, a third holds the 70 without. A third of the patients with protein is
held out in turn; their protein is predicted from their mRNA and miRNA.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from multicentre.datasets import LabelledMultiView, cross_validation_splits, split_scenario
from multicentre_papers.fed_mv_ppca.measure import (
    accuracy_in_latent_space,
    fit,
    imputation_errors,
    mean_absolute_error,
)
from multicentre_papers.fed_mv_ppca.methods import build_ppca
from multicentre_papers.fed_mv_ppca.plan import Plan
from multicentre_papers.fed_mv_ppca.samples import generator

VIEW = "protein"
WITHOUT = "without-protein"
N_COMPONENTS = (2, 5)
Method = Literal["paper", "invariant", "hierarchical"]
METHODS: tuple[Method, ...] = ("paper", "invariant", "hierarchical")


@dataclass(frozen=True)
class Imputed:
    """One fit: errors of held-out rows and of their protein, columns in the unit interval; accuracy of the subtypes."""

    n_components: int
    method: str
    centres: str
    repetition: int
    fold: int
    mae_test: float
    imputation_mae: float
    mean_imputation_mae: float
    accuracy: float


def impute_unmeasured(labelled: LabelledMultiView, plan: Plan, report: Callable[[int], None]) -> list[Imputed]:
    """Fit every mode with the centre that lacks protein, and the invariant one without that centre too.

    Parameters
    ----------
    labelled : LabelledMultiView
        The data in the unit interval.
    plan : Plan
        Repetitions, folds and budget.
    heard : callable
        Told the number of fits so far.
    """
    there = labelled.data.patients_with(VIEW)
    complete, lacking = labelled.take(there), labelled.take(~there).drop([VIEW])
    rows: list[Imputed] = []
    for repetition in range(plan.n_repetitions):
        splits = cross_validation_splits(complete, plan.n_folds, generator(repetition, 2))
        for f, (learnt, held_out) in enumerate(splits[: plan.n_folds_used]):
            centres = split_scenario(complete.take(learnt), "IID", 2, generator(repetition, 1, f))
            exam = complete.take(held_out)
            for q, (method, training) in itertools.product(N_COMPONENTS, _arrangements(centres, lacking)):
                rows.append(_fit_once(q, method, training, exam, plan, repetition, f))
                report(len(rows))
    return rows


def n_fits(plan: Plan) -> int:
    """Return how many fits :func:`impute_unmeasured` makes."""
    return plan.n_fits * len(N_COMPONENTS) * (len(METHODS) + 1)


def mean_by_arrangement(rows: list[Imputed]) -> dict[tuple[int, str, str], dict[str, float]]:
    """Return the mean of every figure by latent dimensions, method and centres."""
    figures = ("mae_test", "imputation_mae", "mean_imputation_mae", "accuracy")
    groups: dict[tuple[int, str, str], list[Imputed]] = {}
    for row in rows:
        groups.setdefault((row.n_components, row.method, row.centres), []).append(row)
    return {
        place: {name: float(np.mean([getattr(row, name) for row in members])) for name in figures}
        for place, members in sorted(groups.items(), key=lambda group: group[0][0])
    }


def _arrangements(
    centres: dict[str, LabelledMultiView], lacking: LabelledMultiView
) -> list[tuple[Method, dict[str, LabelledMultiView]]]:
    everyone = centres | {WITHOUT: lacking}
    return [*((method, everyone) for method in METHODS), ("invariant", centres)]


def _fit_once(
    q: int,
    method: Method,
    training: dict[str, LabelledMultiView],
    exam: LabelledMultiView,
    plan: Plan,
    repetition: int,
    f: int,
) -> Imputed:
    model = build_ppca(method)(plan, q, repetition)
    fit(model, training)
    predicted, by_mean = imputation_errors(model, training, exam.data, VIEW)
    return Imputed(
        q,
        method,
        "with the centre that lacks it" if WITHOUT in training else "complete centres only",
        repetition,
        f,
        mae_test=mean_absolute_error(model, exam.data),
        imputation_mae=predicted,
        mean_imputation_mae=by_mean,
        accuracy=accuracy_in_latent_space(model, training, exam),
    )
