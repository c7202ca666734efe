"""Records of a site in a fit: their bins, margins, gradients and losses, and the records that a round draws.

A record is drawn by a hash of its values, so that no site sends which records it drew, and the draw does not depend on
the site or the order of the records. Equal records of a site are numbered, so that they are drawn separately.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.trees import number_of
from multicentre.data.records import fewest_alike

Bins = NDArray[np.uint16]
Singles = NDArray[np.float32]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
Keys = NDArray[np.uint64]
# Largest weight in units: integers up to 2**53 are exact in double precision.
_LARGEST = 2.0**52
# No draw: every record is summed.
_EVERY = np.zeros(0, dtype=np.bool_)
# Constants of the finaliser of SplitMix64, which spreads keys evenly.
_GOLDEN, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Records:
    """Bins, margins and gradients of every record.

    Parameters
    ----------
    X : array of shape (n, d)
        Values in single precision, NaN for missing.
    y : array of shape (n,)
        Outcomes in single precision, or places of classes. Times without an event are negative.
    start : Start
        Settings that all sites agree on.
    weights : array of shape (n,), optional
        Weights of the records; by default all are 1.
    first_margins : array of shape (n, k), optional
        Margins before the first tree; by default those of `start`.
    """

    def __init__(
        self,
        X: Singles,
        y: Singles,
        start: messages.Start,
        weights: Singles | None = None,
        first_margins: Singles | None = None,
    ) -> None:
        self._start, self._y = start, y
        self._objective = number_of(start.objective, start.distribution)
        self._n_bins, self._first = start.n_bins, start.first
        self._binned = digitise(X, start)
        self._weights = np.ones(len(y), dtype=np.float32) if weights is None else weights
        common = np.repeat(start.base[None, :], len(y), axis=0)
        self._first_margins = common if first_margins is None else first_margins
        self._margins = self._first_margins.copy()
        of_second = (start.objective == "binary:logistic") & (y == 1)
        self._slope_weights = np.where(of_second, self._weights * np.float32(start.positive), self._weights)
        # Power of the mean in the variance, or scale of log times.
        self._shape = float(start.power or start.scale or 0.0)
        self._keys = None
        if start.subsample is not None:
            self._keys = record_keys(np.column_stack([X, y, self._weights, self._first_margins]))
        self._n_rounds = 0
        # Leaf of every record in the growing trees; a record moves down as they grow.
        self._places: Integers | None = None
        self._derivatives: Sums | None = None
        self._losses: Sums | None = None

    def catch_up(self, trees: messages.Trees) -> None:
        """Add the new rounds to the margins; with fewer rounds than before, compute the margins again."""
        from multicentre.boosting.kernels.descent import add_leaves

        n_groups = len(self._start.base)
        n_rounds = len(trees.roots) // n_groups
        if n_rounds == self._n_rounds:
            return
        if n_rounds < self._n_rounds:
            self._margins[:], self._n_rounds, self._places = self._first_margins, 0, None
        for number in range(self._n_rounds, n_rounds):
            new = trees.trees.slice(number * n_groups, (number + 1) * n_groups)
            add_leaves(self._margins, self._descend(new, self._places), new.roots, new.value)
            self._places = None
        self._n_rounds, self._derivatives, self._losses = n_rounds, None, None

    def sum_by_bin(self, growing: messages.Trees, wanted: Integers, *, counted: bool) -> Sums:
        """Return slopes, curvatures and, if requested, numbers of records by wanted leaf and cell, shape (s, q, z).

        With `subsample`, they are those of the records that the round draws. The trees are those of the last request
        of this round, or have grown from them.
        """
        from multicentre.boosting.kernels.histograms import sum_by_bin

        start, drawn = self._start, _EVERY
        if self._keys is not None:
            drawn = draw_records(self._keys, int(start.seed or 0), self._n_rounds, float(start.subsample or 1.0))
        row = np.full(len(growing.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        self._places = self._descend(growing, self._places)
        of_leaves = (growing.roots, self._places, row)
        n_sums = 3 if counted else 2
        sums = sum_by_bin(self._binned, *of_leaves, self._derive(), self._first, len(wanted), n_sums, drawn)
        return in_range(sums)

    def _descend(self, trees: messages.Trees, places: Integers | None) -> Integers:
        """Return the leaf of every record in each tree; `places` are nodes above them, by default the roots."""
        from multicentre.boosting.kernels.descent import descend

        if places is None:
            places = np.zeros((len(trees.roots), len(self._y)), dtype=np.int32)
        descend(places, self._binned, self._n_bins, *trees.splits)
        return places

    def count_ranks(self, borders: Singles) -> Sums:
        """Return records of two classes, or their weight, by cell of the margin, shape (2, b + 1)."""
        cells = np.searchsorted(borders, self._margins[:, 0], side="right")
        sums = np.zeros((2, len(borders) + 1), dtype=np.int64)
        np.add.at(sums, (self._y.astype(np.int64), cells), self._whole_weights())
        return in_range(sums)

    @cached_property
    def fewest(self) -> int:
        """Smallest number of records in an unmasked sum over nodes and bins.

        Records with equal bins, outcome, weight and first margin are in the same leaf of every tree, with equal
        gradient and loss. All sums of all rounds consist of such groups. Deep trees separate any other records.
        """
        columns = [self._binned.astype(np.float32), self._y, self._weights, self._first_margins]
        return fewest_alike(np.column_stack(columns))

    @property
    def losses(self) -> Sums:
        """Weighted sum of the losses, and number of records or their weight, shape (2,), within the bound of sums."""
        from multicentre.boosting.kernels.derivatives import find_losses

        if self._losses is None:
            units = 2.0**-self._start.loss_exponent
            losses = find_losses(self._objective, self._margins, self._y, self._weights, self._shape, units)
            self._losses = in_range(np.array([losses.sum(), self._total_weight], dtype=np.int64))
        return self._losses

    def _derive(self) -> Sums:
        """Return slopes and curvatures in whole units, shape (k, n, 2)."""
        from multicentre.boosting.kernels.derivatives import derive

        if self._derivatives is None:
            start = self._start
            units = 2.0**-start.slope_exponent, 2.0**-start.curvature_exponent
            of_records = (self._margins, self._y, self._slope_weights)
            derivatives: Sums = derive(self._objective, *of_records, self._shape, *units)
            self._derivatives = derivatives
        return self._derivatives

    @cached_property
    def _total_weight(self) -> int:
        """Sum of the weights in their unit."""
        return int(self._whole_weights().sum())

    def _whole_weights(self) -> Sums:
        """Return the weights in their unit, shape (n,); 1 without weights."""
        units = self._weights.astype(np.float64) * 2.0 ** -(self._start.weight_exponent or 0.0)
        whole: Sums = np.rint(np.minimum(units, _LARGEST)).astype(np.int64)
        return whole


def in_range(sums: Sums) -> Sums:
    """Return sums clipped to the declared bound, so that no record can make a site refuse."""
    largest = int(messages.MAX_SUM)
    return np.clip(sums, -largest, largest) if sums.max() > largest or sums.min() < -largest else sums


def digitise(X: NDArray[np.float32], cuts: messages.Cuts) -> Bins:
    """Return the bin of every value, shape (n, d): the number of cuts at or below it; one more than all if missing.

    Examples
    --------
    >>> cuts = messages.Cuts(np.array([1, 2], dtype=np.float32), np.array([2], dtype=np.int32))
    >>> digitise(np.array([[0.5], [1], [3], [np.nan]], dtype=np.float32), cuts).ravel().tolist()
    [0, 1, 2, 3]
    """
    binned = np.empty(X.shape, dtype=np.uint16)
    ends = np.append(0, np.cumsum(cuts.n_cuts)).tolist()
    for column in range(X.shape[1]):
        column_cuts, values = cuts.cuts[ends[column] : ends[column + 1]], X[:, column]
        bins = np.searchsorted(column_cuts, values, side="right")
        binned[:, column] = np.where(np.isnan(values), len(column_cuts) + 1, bins)
    return binned


def record_keys(rows: Singles) -> Keys:
    """Return a key of each record, shape (n,), from its values and its number among equal records.

    Parameters
    ----------
    rows : array of shape (n, m)

    Examples
    --------
    >>> keys = record_keys(np.array([[1, 2], [1, 2], [3, 4]], dtype=np.float32))
    >>> len(set(keys.tolist())), bool(keys[2] == record_keys(np.array([[3, 4]], dtype=np.float32))[0])
    (3, True)
    """
    values = np.ascontiguousarray(rows + np.float32(0.0))  # -0.0 is 0.0
    counts: dict[bytes, int] = {}
    keys = np.empty(len(values), dtype=np.uint64)
    for place, row in enumerate(values):
        content = row.tobytes()
        number = counts.get(content, 0)
        counts[content] = number + 1
        digest = hashlib.blake2b(content + number.to_bytes(8, "little"), digest_size=8).digest()
        keys[place] = int.from_bytes(digest, "little")
    return keys


def draw_records(keys: Keys, seed: int, number: int, share: float) -> NDArray[np.bool_]:
    """Return which records a boosting round uses, shape (n,); each with probability `share`.

    Parameters
    ----------
    keys : array of shape (n,)
    seed : int
    number : int
        Number of the round, from 0.
    share : float

    Examples
    --------
    >>> keys = record_keys(np.arange(10_000, dtype=np.float32)[:, None])
    >>> bool(abs(draw_records(keys, 7, 0, 0.3).mean() - 0.3) < 0.02)
    True
    """
    stream = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    mixed = keys ^ np.uint64(int.from_bytes(stream, "little"))
    mixed = mixed + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed = mixed ^ (mixed >> np.uint64(31))
    # The 53 leading bits make a number from 0 to below 1 in double precision.
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
