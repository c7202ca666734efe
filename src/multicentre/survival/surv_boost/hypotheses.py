"""Predictions and losses of hypotheses for the patients of a site, computed once per leaf of a tree if possible.

A hypothesis is a mixture of learners: the learner of one site (a single share of 1), or a committee of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from multicentre.data.records import effective_number, fewest_told_apart
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.fitted_models import CoxModel, SurvivalModel, Trees
from multicentre.survival.fitted_models.base import Bytes, join, split
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.surv_boost.maths import brier_losses, brier_tables, time_losses
from multicentre.survival.times import time_to_share

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LEARNERS: dict[str, type[SurvivalModel]] = {kind.__name__: kind for kind in (CoxModel, Trees, Network)}
LOSSES = ("rmst", "median", "brier")
# Largest number of learners that a site reads.
MAX_LEARNERS = 4096
# Divisor of Brier scores.
BRIER_UNIT = 16.0


def pack_learners(learners: Sequence[SurvivalModel]) -> tuple[Bytes, Integers]:
    """Serialise learners to bytes: consecutive trees as one forest, every other learner separately."""
    parts: list[SurvivalModel] = []
    for are_trees, group in groupby(learners, lambda learner: isinstance(learner, Trees)):
        members = list(group)
        trees = [learner for learner in members if isinstance(learner, Trees)]
        parts += [Trees.joined(trees, np.ones(len(trees)))] if are_trees else members
    return join(parts)


def read_learners(packed: Bytes, lengths: Integers, times: Floats, n_columns: int) -> list[SurvivalModel]:
    """Return models serialised by :func:`pack_learners`; every tree of a forest is a learner.

    Raises
    ------
    MessageError
        There are more learners than allowed, or one is invalid or has a different grid.
    """
    if len(lengths) > MAX_LEARNERS:
        raise MessageError(
            f"number of packed models must be at most {MAX_LEARNERS}; got {len(lengths)}",
            where="hypotheses",
            hint="Fit fewer hypotheses.",
        )
    models = list(split(packed, lengths, LEARNERS, n_columns))
    if not all(np.array_equal(model.times, times) for model in models):
        raise MessageError(
            "all learners must use the agreed grid of times; got a learner with a different grid", where="hypotheses"
        )
    # Every tree of a forest counts.
    n_learners = sum(map(count_learners, models))
    if n_learners > MAX_LEARNERS:
        raise MessageError(
            f"number of learners must be at most {MAX_LEARNERS}; got {n_learners}",
            where="hypotheses",
            hint="Fit fewer hypotheses.",
        )
    return models


def is_constant(model: SurvivalModel) -> bool:
    """Return whether a learner predicts the same for every patient (trees without splits, coefficients of 0)."""
    if isinstance(model, Trees):
        return not model.has_split.any()
    return isinstance(model, CoxModel) and not model.coefficients.any()


def count_learners(model: SurvivalModel) -> int:
    """Return the number of learners in a model: the number of trees of a forest, otherwise 1."""
    return len(model.roots) if isinstance(model, Trees) else 1


def check_shares(shares: Floats, n_learners: int) -> None:
    """Raise MessageError unless each row holds one non-negative share per learner, with sum 1."""
    good = 0 < len(shares) <= MAX_LEARNERS and shares.shape[1] == n_learners and (shares >= 0).all()
    if not good or (np.abs(shares.sum(axis=1) - 1.0) > 1e-9).any():
        raise MessageError(
            "shares must be non-negative, one per learner, and sum to 1 per hypothesis; got others", where="hypotheses"
        )


def unit_of_loss(loss: str, times: Floats) -> float:
    """Return the divisor of a loss that makes it at most about 1: the horizon, or 16 for Brier scores.

    Raises
    ------
    ConfigurationError
        The loss is unknown.
    """
    if loss not in LOSSES:
        raise ConfigurationError(f"loss must be one of {', '.join(map(repr, LOSSES))}; got {loss!r}", where="loss")
    return BRIER_UNIT if loss == "brier" else float(times[-1])


class HypothesisPredictions:
    """Predictions of learners for patients.

    Parameters
    ----------
    models : sequence of SurvivalModel
        Learners; each tree of a forest is one learner.
    patients : Patients
    """

    def __init__(self, models: Sequence[SurvivalModel], patients: Patients) -> None:
        self.patients = patients
        self._learners: list[tuple[SurvivalModel, Integers | None]] = []
        for model in models:
            leaves = model.leaves(patients.rows).T.astype(np.int64) if isinstance(model, Trees) else [None]
            self._learners += [(model, leaf) for leaf in leaves]

    def __len__(self) -> int:
        return len(self._learners)

    @cached_property
    def means(self) -> Floats:
        """Mean time survived up to the horizon, by patient and learner, shape (n, m); constant within a leaf."""
        return np.column_stack([self._own_means(model, leaf) for model, leaf in self._learners])

    @cached_property
    def fewest_told_apart(self) -> int:
        """Fewest patients, in effect, whom a learner, or the difference of two, tells from the rest."""
        curves = (self._own_curves(place) for place in range(len(self)))
        distances = [np.abs(each[row] - np.median(each[row], axis=0)).sum(axis=1) for each, row in curves]
        effective = [int(effective_number(each) + 1e-6) for each in distances if each.any()]
        return min([fewest_told_apart(self.means, in_pairs=True), *effective])

    def curves(self, mixed: Floats) -> tuple[Floats, Integers]:
        """Return the curves of a mixture of learners, shape (L, K), and the index of each patient's curve, shape (n,).

        Parameters
        ----------
        mixed : array of shape (m,)
            Share of every learner.
        """
        nonzero = np.flatnonzero(mixed).tolist()
        if len(nonzero) == 1:
            return self._own_curves(nonzero[0])
        total = np.zeros((len(self.patients), len(self.patients.agreed.times)))
        for place in nonzero:
            curves, row = self._own_curves(place)
            total += mixed[place] * curves[row]
        return total, np.arange(len(total))

    def losses(self, shares: Floats, loss: str, staying: Floats) -> Floats:
        """Return the loss of every patient under every mixture, divided by the unit of the loss, shape (n, q).

        Parameters
        ----------
        shares : array of shape (q, m)
        loss : {"rmst", "median", "brier"}
        staying : array of shape (K,)
            Probability of not being censored, for Brier scores.
        """
        patients, unit = self.patients, unit_of_loss(loss, self.patients.agreed.times)
        if loss == "rmst":
            return time_losses(self.means @ shares.T, patients.time, patients.happened) / unit
        columns = [self._loss(mixed, loss, staying) for mixed in shares]
        return np.column_stack(columns) / unit

    def _loss(self, mixed: Floats, loss: str, staying: Floats) -> Floats:
        patients = self.patients
        curves, row = self.curves(mixed)
        if loss == "median":
            return time_losses(time_to_share(curves, patients.agreed.times)[row], patients.time, patients.happened)
        tables = brier_tables(curves, patients.agreed.times, staying)
        return brier_losses(tables, row, patients.bins, patients.happened, staying)

    def _own_means(self, model: SurvivalModel, leaf: Integers | None) -> Floats:
        if isinstance(model, Trees) and leaf is not None:
            return model.leaf_means[leaf]
        return model.restricted_mean(self.patients.rows)

    def _own_curves(self, place: int) -> tuple[Floats, Integers]:
        model, leaf = self._learners[place]
        if isinstance(model, Trees) and leaf is not None:
            reached, row = np.unique(leaf, return_inverse=True)
            return model.curves[reached], row
        return model.survival(self.patients.rows), np.arange(len(self.patients))
