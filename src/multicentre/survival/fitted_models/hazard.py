"""Discrete hazards by boosted trees, with time as an additional column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array
from multicentre.errors import MessageError
from multicentre.survival.fitted_models.base import MAX_TIME, SurvivalModel
from multicentre.survival.fitted_models.trees import are_nodes

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
# Largest magnitude of a threshold.
LARGEST = 1e150
# Largest magnitude of log odds; beyond it a hazard is numerically 0 or 1.
MAX_MARGIN = 50.0


@dataclass(frozen=True)
class HazardModel(SurvivalModel):
    """S(t_k | x) = product over j up to k of 1 / (1 + exp(base_j + sum over trees of the leaf of (x, j))).

    Nodes are listed tree by tree, and a node precedes its children. At an inner node a patient goes left if the
    column's value is at most the threshold. Column d, after those of the patients, is the number of the interval. A
    leaf has ``column`` -1, no children (-1) and a value.

    Parameters
    ----------
    times : array of shape (K,)
        Ends of the intervals.
    base : array of shape (K,)
        Log odds of the hazard in every interval before the trees.
    roots : array of shape (T,)
        First node of every tree, increasing from 0; empty without trees.
    column, left, right : array of shape (m,)
    threshold, value : array of shape (m,)
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    base: Floats = array("log odds of the hazard in every interval", ("K",), bound=MAX_MARGIN)
    roots: Integers = array("first node of every tree", ("T",), dtype="i4", bound=2**31)
    column: Integers = array("column of a node's split", ("m",), dtype="i4", bound=2**31)
    threshold: Floats = array("threshold of a node's split, on an edge that all sites share", ("m",), bound=LARGEST)
    left: Integers = array("child for values up to the threshold", ("m",), dtype="i4", bound=2**31)
    right: Integers = array("child for values above", ("m",), dtype="i4", bound=2**31)
    value: Floats = array("increment of the log odds at a leaf", ("m",), bound=MAX_MARGIN)

    def log_odds(self, X: Floats) -> Floats:
        """Return the log odds of each patient's hazard in every interval, shape (n, K)."""
        from multicentre.survival.kernels.hazard import add_trees

        margins = np.repeat(self.base[None, :], len(X), axis=0)
        last = np.full(len(X), len(self.times) - 1, dtype=np.int32)
        rows = np.array(X, dtype=np.float64, order="C")
        # Copies, because decoded arrays are read-only, for which the kernel would be compiled a second time.
        nodes = map(np.array, (self.roots, self.column, self.threshold, self.left, self.right, self.value))
        add_trees(margins, rows, last, *nodes)
        return margins

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        from multicentre.survival.kernels.hazard import survival_of_margins

        return survival_of_margins(self.log_odds(X))

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless nodes form trees of columns and intervals, and log odds are within bounds."""
        if len(self.column) and not _are_trees(self, n_columns):
            raise MessageError(
                f"nodes must form trees of {n_columns} columns and of time; got others", where="HazardModel"
            )
        if not len(self.column) and len(self.roots):
            raise MessageError("trees must have nodes; got none", where="HazardModel")
        largest = max(np.abs(self.base).max(), np.abs(self.value).max(initial=0.0))
        if largest > MAX_MARGIN:
            raise MessageError(
                f"log odds must be at most {MAX_MARGIN:g} in magnitude; got {largest:g}", where="HazardModel"
            )


def _are_trees(model: HazardModel, n_columns: int) -> bool:
    of_time = model.column == n_columns
    return bool(
        are_nodes(model.roots, model.column, model.left, model.right)
        and (model.column <= n_columns).all()
        and _are_intervals(model.threshold[of_time], len(model.times))
    )


def _are_intervals(thresholds: Floats, n_times: int) -> bool:
    return bool(((thresholds == np.rint(thresholds)) & (thresholds >= 0) & (thresholds < n_times - 1)).all())
