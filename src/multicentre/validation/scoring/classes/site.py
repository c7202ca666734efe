"""Scoring of classes beside the patients: all that a coordinator can ask of a site, and all that it answers.

Under a mask counts leave as they are, since only totals over sites show. In clear, bins of few records are joined at
places that nobody's records decide, and what cannot be joined is refused where few stand behind it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Nothing
from multicentre.federation.steps import step
from multicentre.survival.times.joining import find_places
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.classes import messages as sent
from multicentre.validation.scoring.judging import JudgingPart

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class ClassPart(JudgingPart):
    """Base of the site parts that score classes; a subclass says what is true and what the model says."""

    def true_classes(self) -> Integers:
        """Return the class of every record, a place among the model's, shape (n,)."""
        raise NotImplementedError

    def predict_chances(self) -> Floats:
        """Return the chance that the model gives to each class, shape (n, k)."""
        raise NotImplementedError

    @step(releases=sent.Right, when="at the end", summed=True)
    def count_right(self, ask: Nothing) -> sent.Right:
        """Count records whose class is named, and the others."""
        right = int((self.named == self.truth).sum())
        counts = np.array([right, len(self.truth) - right])
        return sent.Right(counts, patients=self.behind(counts))

    @step(releases=sent.Losses, when="at the end", summed=True)
    def sum_losses(self, ask: Nothing) -> sent.Losses:
        """Sum log losses and Brier scores."""
        log, brier = maths.log_losses(self.chances, self.truth), maths.brier_losses(self.chances, self.truth)
        (log_total, one), (brier_total, other) = self.summed(log), self.summed(brier)
        return sent.Losses(len(self.truth), log_total, brier_total, patients=min(one, other))

    @step(releases=sent.Confusion, when="at the end", summed=True)
    def count_confusion(self, ask: Nothing) -> sent.Confusion:
        """Count records by true and by named class."""
        return sent.Confusion(self.confusion, patients=self.behind(self.confusion))

    @step(releases=sent.Located, when="at the end", summed=True)
    def locate_scores(self, ask: Nothing) -> sent.Located:
        """Count records by coarse bin of log odds, for bins that hold about as many."""
        edges = maths.coarse_edges()
        rows = [np.bincount(np.searchsorted(edges, own), minlength=len(edges) + 1) for own in self.scores.T]
        counts = np.array([self._placed(row[None])[0][0] for row in rows])
        return sent.Located(counts, patients=self.behind(counts))

    @step(releases=sent.Ranked, when="at the end", summed=True)
    def count_scores(self, ask: sent.Edges) -> sent.Ranked:
        """Count records with and without each class by bin of its log odds."""
        self.answer_once("count_scores", ask)
        self._check_edges(ask.edges)
        found = [self._placed(self._ranked(row, edges)) for row, edges in enumerate(ask.edges)]
        low, high = (np.array(side) for side in zip(*found, strict=True))
        return sent.Ranked(low, high, patients=self.behind(low))

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        table = self.confusion
        if name == "accuracy":
            right = np.array([np.trace(table), table.sum() - np.trace(table)])
            return float(right[0] / right.sum()), _fewest(right)
        if name in maths.FROM_CONFUSION:
            return maths.from_confusion(name, table.astype(np.float64)), _fewest(table)
        if name in ("neg_log_loss", "neg_brier_score"):
            losses = maths.log_losses if name == "neg_log_loss" else maths.brier_losses
            mean, behind = self.own_mean(losses(self.chances, self.truth))
            return -mean, behind
        return self._own_ranks(name)

    @cached_property
    def truth(self) -> Integers:
        """Class of every record, shape (n,)."""
        return self.true_classes()

    @property
    def chances(self) -> Floats:
        """Chance of each class, shape (n, k)."""
        return np.clip(self.predicted(self.predict_chances), 0.0, 1.0)

    @property
    def named(self) -> Integers:
        """The class of the largest chance, the first of several, shape (n,)."""
        return np.asarray(np.argmax(self.chances, axis=1), dtype=np.int64)

    @property
    def confusion(self) -> Integers:
        """Records by true and by named class, shape (k, k)."""
        n_classes = self.chances.shape[1]
        cells: Integers = np.bincount(self.truth * n_classes + self.named, minlength=n_classes**2)
        return cells.reshape(n_classes, n_classes)

    @property
    def ranked(self) -> list[int]:
        """Classes that are ranked: the second of two, each of more."""
        n_classes = self.chances.shape[1]
        return [1] if n_classes == 2 else list(range(n_classes))

    @property
    def scores(self) -> Floats:
        """Log odds of each class that is ranked, shape (n, r)."""
        return maths.log_odds(self.chances[:, self.ranked])

    def _ranked(self, row: int, edges: Floats) -> Integers:
        """Return records without and with a class by bin, shape (2, b)."""
        bins, n_bins = np.searchsorted(edges, self.scores[:, row]), len(edges) + 1
        has_class = (self.truth == self.ranked[row]).astype(np.int64)
        cells: Integers = np.bincount(has_class * n_bins + bins, minlength=2 * n_bins)
        return cells.reshape(2, n_bins)

    def _placed(self, counts: Integers) -> tuple[Integers, Integers]:
        """Return counts by the lowest and by the highest bin that can be theirs, as they may leave."""
        if self.masked or self.least_behind <= 1:
            return counts, counts
        return join_bins(counts, self.least_behind)

    def _own_ranks(self, name: str) -> tuple[float, int]:
        """Return a score of ranks; records whose score few have are tied with neighbours, of any class."""
        found, fewest = [], []
        for row, own in enumerate(self.scores.T):
            counts = self._ranked(row, np.unique(own)[:-1])
            fewest.append(int(counts.sum(axis=1).min()))
            if not fewest[-1]:
                return float("nan"), 0
            tied = tie_few(counts, self.least_behind).astype(np.float64)
            area = maths.area_under_curve(tied, tied)[0]
            found.append(maths.average_precision(tied) if name == "average_precision" else area)
        return float(np.mean(found)), min(fewest)

    def _check_edges(self, edges: Floats) -> None:
        rows, n_edges = edges.shape
        fits = rows == len(self.ranked) and 0 < n_edges < 4 * maths.N_BINS
        if not fits or (np.diff(edges, axis=1) <= 0).any():
            raise MessageError("the bins of scores do not fit the model, or do not rise", where="count_scores")


def join_bins(counts: Integers, least: int) -> tuple[Integers, Integers]:
    """Join bins until each row holds `least` records or none in each, and tell between which bins they lie.

    Bins are joined first for all rows alike, until `least` records of all rows together are in each: which of two
    classes joins a bin of one record would tell the class of that record. Then each row is joined by itself. A block of
    joined bins goes to a place that nobody's records decide; its records lie between the places of its neighbours. A
    bin that holds enough by itself stays what it is.

    Parameters
    ----------
    counts : array of shape (r, b)
    least : int

    Returns
    -------
    low, high : arrays of shape (r, b)
        The counts of every block at the lowest and at the highest bin that can be theirs; nothing where a row has too
        few, but some.

    Examples
    --------
    >>> low, high = join_bins(np.array([[2, 1, 0, 3, 0, 0, 4, 0]]), 3)
    >>> low.tolist(), high.tolist()
    ([[3, 0, 0, 3, 0, 0, 4, 0]], [[0, 0, 3, 3, 0, 0, 4, 0]])
    """
    low, high = np.zeros_like(counts), np.zeros_like(counts)
    totals = counts.sum(axis=1)
    if ((totals > 0) & (totals < least)).any():
        return low, high
    tied, first, last = _tied(counts, counts.sum(axis=0), least)
    for row, own in enumerate(tied):
        joined, lowest, highest = _tied(own[None], own, least)
        np.add.at(low[row], first[lowest], joined[0])
        np.add.at(high[row], last[highest], joined[0])
    return low, high


def _tied(counts: Integers, decisive: Integers, least: int) -> tuple[Integers, Integers, Integers]:
    """Return rows by blocks of bins that hold enough of the decisive counts, shape (r, m), and where blocks can lie."""
    occupied = np.flatnonzero(decisive)
    places = find_places(decisive[None], least)[occupied]
    used, block, n_bins = np.unique(places, return_inverse=True, return_counts=True)
    joined = np.zeros((len(counts), len(used)), dtype=np.int64)
    for row, own in enumerate(counts):
        np.add.at(joined[row], block, own[occupied])
    alone = (n_bins == 1) & np.isin(used, occupied)
    first = np.where(alone, used, np.append(0, used[:-1] + 1)[: len(used)])
    last = np.where(alone, used, np.append(used[1:] - 1, len(decisive) - 1)[: len(used)])
    return joined, first, last


def tie_few(counts: Integers, least: int) -> Integers:
    """Return counts by bin, shape (r, b'), neighbours joined until each bin holds `least` of all rows together.

    Parameters
    ----------
    counts : array of shape (r, b)
        No bin is empty.
    least : int

    Examples
    --------
    >>> tie_few(np.array([[9, 5, 0], [0, 4, 1]]), 3).tolist()
    [[9, 5], [0, 5]]
    """
    if least <= 1:
        return counts
    return _tied(counts, counts.sum(axis=0), least)[0]


def _fewest(cells: Integers) -> int:
    return int(cells[cells > 0].min(initial=int(cells.sum())))
