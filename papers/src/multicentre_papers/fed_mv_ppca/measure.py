"""One fit and its figures."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from multicentre.data import MultiViewData
from multicentre.datasets import LabelledMultiView
from multicentre.federation import Federation
from multicentre.multiview.agreement import accuracy_of_groups
from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre.privacy.policy import Policy
from multicentre_papers.fed_mv_ppca.folds import Fold
from multicentre_papers.fed_mv_ppca.methods import POOLED, Candidate, Model
from multicentre_papers.fed_mv_ppca.plan import Plan

# The papers' centres are simulated: a single one may have a view, and a pooled fit is of one site.
NO_MINIMUM = Policy(min_patients=0, min_sites_in_sum=1)

NOTHING = float("nan")


@dataclass(frozen=True)
class Figures:
    """Metrics of one fit; errors in the unit interval that every column was brought to.

    Parameters
    ----------
    mae_train : float
        Mean over centres of the mean absolute reconstruction error of the centre's own rows.
    mae_test : float
        Mean absolute reconstruction error of the held-out rows of all centres.
    accuracy : float
        Share of held-out patients whose group linear discriminant analysis of the latents names.
    log_likelihood : float
        Mean log density of a held-out row, in nats; Fed-mv-PPCA only.
    imputation_mae : float
        Mean absolute error of each view predicted from the others, over all entries; Fed-mv-PPCA only.
    mean_imputation_mae : float
        The same by the mean of the training rows.
    n_rounds : int
        Rounds used.
    converged : bool
        Whether the method's own criterion ended its rounds; of a method with a fixed number of rounds, True.
    seconds : float
        Wall-clock time of the fit.
    """

    mae_train: float
    mae_test: float
    accuracy: float
    log_likelihood: float
    imputation_mae: float
    mean_imputation_mae: float
    n_rounds: int
    converged: bool
    seconds: float


def measure(candidate: Candidate, plan: Plan, fold: Fold, q: int, seed: int) -> Figures:
    """Fit a method on the training rows of a fold and return its figures."""
    training = {"all": fold.pooled} if candidate.name == POOLED else fold.training
    began = time.perf_counter()
    model = fit(candidate.build(plan, q, seed), training)
    seconds = time.perf_counter() - began
    held_out = fold.held_out
    return Figures(
        mae_train=float(np.mean([mean_absolute_error(model, one.data) for one in training.values()])),
        mae_test=mean_absolute_error(model, held_out.data),
        accuracy=accuracy_in_latent_space(model, training, held_out),
        **_imputation(model, training, held_out.data),
        n_rounds=len(model.history_),
        converged=getattr(model, "converged_", True),
        seconds=seconds,
    )


def fit(model: Model, training: dict[str, LabelledMultiView]) -> Model:
    """Fit an estimator over centres in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(Federation.in_process({name: one.data for name, one in training.items()}, policy=NO_MINIMUM))
    return model


def mean_absolute_error(model: Model, data: MultiViewData) -> float:
    """Return the mean absolute reconstruction error over the observed entries."""
    rebuilt = model.reconstruct(data)
    errors = np.hstack([np.abs(data.array(view) - rebuilt[view]) for view in data.views])
    return float(np.nanmean(errors))


def accuracy_in_latent_space(
    model: Model, training: dict[str, LabelledMultiView], held_out: LabelledMultiView
) -> float:
    """Return the share of held-out patients whose group is predicted from the latents of the training rows."""
    latents = np.vstack([model.transform(one.data) for one in training.values()])
    labels = np.concatenate([one.labels for one in training.values()])
    return accuracy_of_groups(latents, labels.tolist(), model.transform(held_out.data), held_out.labels.tolist())


def imputation_errors(
    model: FedMvPPCA, training: dict[str, LabelledMultiView], data: MultiViewData, view: str
) -> tuple[float, float]:
    """Return the mean absolute errors of a view predicted from the others, and by the mean of the training rows."""
    observed = data.take(data.patients_with(view))
    truth = observed.array(view)
    rows = np.vstack([one.data.array(view) for one in training.values() if view in one.data.views])
    predicted = model.impute(observed, view).mean
    return float(np.nanmean(np.abs(truth - predicted))), float(np.nanmean(np.abs(truth - np.nanmean(rows, axis=0))))


def _imputation(model: Model, training: dict[str, LabelledMultiView], data: MultiViewData) -> dict[str, float]:
    if not isinstance(model, FedMvPPCA):
        return dict.fromkeys(("log_likelihood", "imputation_mae", "mean_imputation_mae"), NOTHING)
    errors = np.array([imputation_errors(model, training, data, view) for view in data.views])
    sizes = [data.array(view).shape[1] for view in data.views]
    predicted, by_mean = np.average(errors, axis=0, weights=sizes)
    return {
        "log_likelihood": model.score(data),
        "imputation_mae": float(predicted),
        "mean_imputation_mae": float(by_mean),
    }
