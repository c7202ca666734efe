"""What hypotheses say of a site's patients, and what that costs: one number for each leaf of a tree, where it will do.

A hypothesis is a mixture of learners: a site's own (one share of 1), or a committee of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.boost.maths import brier_losses, brier_tables, time_losses
from multicentre.survival.models import CoxModel, SurvivalModel, Trees
from multicentre.survival.models.base import Bytes, join, split
from multicentre.survival.models.network import Network
from multicentre.survival.times import time_to_share

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LEARNERS: dict[str, type[SurvivalModel]] = {kind.__name__: kind for kind in (CoxModel, Trees, Network)}
LOSSES = ("rmst", "median", "brier")
MOST_LEARNERS = 4096
BRIER_UNIT = 16.0


def pack_learners(learners: Sequence[SurvivalModel]) -> tuple[Bytes, Integers]:
    """Return learners as bytes: trees that follow each other as one forest, each other learner by itself."""
    parts: list[SurvivalModel] = []
    for are_trees, group in groupby(learners, lambda learner: isinstance(learner, Trees)):
        found = list(group)
        trees = [learner for learner in found if isinstance(learner, Trees)]
        parts += [Trees.joined(trees, np.ones(len(trees)))] if are_trees else found
    return join(parts)


def read_learners(packed: Bytes, lengths: Integers, times: Floats, n_columns: int) -> list[SurvivalModel]:
    """Return models that :func:`pack_learners` packed; every tree of a forest is a learner.

    Raises
    ------
    MessageError
        They are too many, or one is not valid or on another grid.
    """
    if len(lengths) > MOST_LEARNERS:
        raise MessageError(f"more than {MOST_LEARNERS} learners were sent", where="hypotheses")
    models = list(split(packed, lengths, LEARNERS, n_columns))
    if not all(np.array_equal(model.times, times) for model in models):
        raise MessageError("a learner is on another grid", where="hypotheses")
    if sum(map(count_learners, models)) > MOST_LEARNERS:
        raise MessageError(f"more than {MOST_LEARNERS} learners were sent", where="hypotheses")
    return models


def is_constant(model: SurvivalModel) -> bool:
    """Return whether a learner predicts the same for every patient: trees without a split, coefficients of 0."""
    if isinstance(model, Trees):
        return model.n_constant == len(model.roots)
    return isinstance(model, CoxModel) and not model.coefficients.any()


def count_learners(model: SurvivalModel) -> int:
    """Return how many learners a model holds: the trees of a forest, otherwise 1."""
    return len(model.roots) if isinstance(model, Trees) else 1


def check_shares(shares: Floats, n_learners: int) -> None:
    """Raise MessageError unless each row has a share from 0 for every learner, together 1."""
    good = 0 < len(shares) <= MOST_LEARNERS and shares.shape[1] == n_learners and (shares >= 0).all()
    if not good or (np.abs(shares.sum(axis=1) - 1.0) > 1e-9).any():
        raise MessageError("shares of the learners do not sum to 1", where="hypotheses")


def unit_of_loss(loss: str, times: Floats) -> float:
    """Return what a loss is divided by, so that it is at most about 1: the horizon, or 16 for Brier scores.

    Raises
    ------
    ConfigurationError
        There is no such loss.
    """
    if loss not in LOSSES:
        raise ConfigurationError(f"{loss!r} is no loss", where="loss", hint=f"Use one of {', '.join(LOSSES)}.")
    return BRIER_UNIT if loss == "brier" else float(times[-1])


class Opinions:
    """What learners say of patients.

    Parameters
    ----------
    models : sequence of SurvivalModel
        A forest counts for as many learners as it has trees.
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
        """Mean time survived up to the horizon, by patient and learner, shape (n, m); one number a leaf."""
        return np.column_stack([self._own_means(model, leaf) for model, leaf in self._learners])

    def curves(self, mixed: Floats) -> tuple[Floats, Integers]:
        """Return the curves of a mixture of learners, shape (L, K), and which is each patient's, shape (n,).

        Parameters
        ----------
        mixed : array of shape (m,)
            Share of every learner.
        """
        taken = np.flatnonzero(mixed).tolist()
        if len(taken) == 1:
            return self._own_curves(taken[0])
        total = np.zeros((len(self.patients), len(self.patients.agreed.times)))
        for place in taken:
            curves, row = self._own_curves(place)
            total += mixed[place] * curves[row]
        return total, np.arange(len(total))

    def losses(self, shares: Floats, loss: str, staying: Floats) -> Floats:
        """Return the loss of every patient under every mixture, over the loss's unit, shape (n, q).

        Parameters
        ----------
        shares : array of shape (q, m)
        loss : {"rmst", "median", "brier"}
        staying : array of shape (K,)
            Chance of not being censored, for Brier scores.
        """
        patients, unit = self.patients, unit_of_loss(loss, self.patients.agreed.times)
        if loss == "rmst":
            return time_losses(self.means @ shares.T, patients.time, patients.happened) / unit
        found = [self._loss(mixed, loss, staying) for mixed in shares]
        return np.column_stack(found) / unit

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
