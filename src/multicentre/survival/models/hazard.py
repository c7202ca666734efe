"""Discrete hazards by boosted trees, in which time is a column like any other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array
from multicentre.survival.models.base import LATEST, SurvivalModel
from multicentre.survival.models.trees import are_nodes

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
LARGEST = 1e150
LARGEST_MARGIN = 50.0


@dataclass(frozen=True)
class HazardModel(SurvivalModel):
    """S(t_k | x) = product over j up to k of 1 / (1 + exp(base_j + sum over trees of the leaf of (x, j))).

    All nodes stand one after the other, tree by tree; a node comes before its children. At an inner node a patient goes
    left when the column's value is at most the threshold; column d, after the patients' own, is the number of the
    interval. A leaf has ``column`` -1, no children (-1) and a value.

    Parameters
    ----------
    times : array of shape (K,)
        Ends of the intervals.
    base : array of shape (K,)
        Log odds of the hazard in every interval before the trees.
    roots : array of shape (T,)
        First node of every tree, increasing from 0; there may be none.
    column, left, right : array of shape (m,)
    threshold, value : array of shape (m,)
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    base: Floats = array("log odds of the hazard in every interval", ("K",), bound=LARGEST_MARGIN)
    roots: Integers = array("first node of every tree", ("T",), dtype="i4", bound=2**31)
    column: Integers = array("column of a node's split", ("m",), dtype="i4", bound=2**31)
    threshold: Floats = array("threshold of a node's split, on an edge that all sites share", ("m",), bound=LARGEST)
    left: Integers = array("child for values up to the threshold", ("m",), dtype="i4", bound=2**31)
    right: Integers = array("child for values above", ("m",), dtype="i4", bound=2**31)
    value: Floats = array("what a leaf adds to the log odds", ("m",), bound=LARGEST_MARGIN)

    def log_odds(self, X: Floats) -> Floats:
        """Return the log odds of each patient's hazard in every interval, shape (n, K)."""
        from multicentre.survival.kernels.hazard import add_trees

        margins = np.repeat(self.base[None, :], len(X), axis=0)
        last = np.full(len(X), len(self.times) - 1, dtype=np.int32)
        rows = np.array(X, dtype=np.float64, order="C")
        # Copies, for decoded arrays cannot be written to, and the kernel would be compiled for them once more.
        nodes = map(np.array, (self.roots, self.column, self.threshold, self.left, self.right, self.value))
        add_trees(margins, rows, last, *nodes)
        return margins

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        from multicentre.survival.kernels.hazard import survival_of_margins

        return survival_of_margins(self.log_odds(X))

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless nodes make trees of these columns and the intervals, and log odds are moderate."""
        if len(self.column) and not _are_trees(self, n_columns):
            raise MessageError("nodes do not make trees", where="HazardModel")
        if not len(self.column) and len(self.roots):
            raise MessageError("trees without nodes", where="HazardModel")
        largest = max(np.abs(self.base).max(), np.abs(self.value).max(initial=0.0))
        if largest > LARGEST_MARGIN:
            raise MessageError("a log odds is out of range", where="HazardModel")


def _are_trees(model: HazardModel, n_columns: int) -> bool:
    of_time = model.column == n_columns
    return bool(
        are_nodes(model.roots, model.column, model.left, model.right)
        and (model.column <= n_columns).all()
        and _are_intervals(model.threshold[of_time], len(model.times))
    )


def _are_intervals(thresholds: Floats, n_times: int) -> bool:
    return bool(((thresholds == np.rint(thresholds)) & (thresholds >= 0) & (thresholds < n_times - 1)).all())
