"""Rounds of federated XGBoost, which grow trees level by level from histograms summed over sites.

Before the first round, the sites agree on columns, classes, the first margins and the cuts of every column
(:mod:`multicentre.boosting.agreement`), and the coordinator sends this start to every site.

One round grows one tree, or one per class if there are more than two classes. For each level of these trees:

1. The coordinator sends the growing trees and the leaves to sum: of two siblings, the one with the smaller sum of
   curvatures. With the first level of a round it sends the trees of the last finished round too.
2. Each site adds the finished trees to the margins of its records. It returns the sum of their losses, and sums of
   slopes and curvatures by leaf and bin, with ``min_samples_leaf`` also numbers of records. With ``subsample``, sums by
   leaf and bin are those of the records that the round draws.
3. The coordinator adds up the sums and computes those of the other siblings as differences from their parents. It
   splits each leaf at the cut with the largest gain, if that gain is sufficient. It leaves out columns that were not
   drawn for the node or may not follow those above it, and splits against a monotone constraint.

If a site is lost, the coordinator requests the sums of both siblings, since the sums of their parents may contain the
records of that site.

A round ends when no leaf is split, or at ``max_depth``. If there are validation records, the coordinator then sends the
new trees in a separate session, and each site returns the sum of their losses, and numbers of records by class and
margin if the area under the curve is requested (:mod:`multicentre.boosting.ranking`). The rounds stop after
``n_estimators`` rounds, or if the validation metric does not improve in ``n_iter_no_change`` rounds. After the last
round, each site returns the sum of the losses of its training records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.maths import Columns, Penalty, Splits, find_splits, newton_steps
from multicentre.boosting.ranking import find_area
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import LARGEST_VALUE, Ensemble
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.core.tie_breaking import first_least
from multicentre.errors import DataError

Sums = NDArray[np.int64]
Places = list[tuple[int, int]]


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use.

    Parameters
    ----------
    n_rounds, max_depth : int
    learning_rate : float
    penalty : Penalty
    patience : int
        Rounds without a better validation metric after which the fit stops; 0 for no early stopping.
    columns : Columns
        Columns on which nodes may be split.
    ranks : bool
        The validation metric is the area under the curve instead of the loss.
    """

    n_rounds: int
    max_depth: int
    learning_rate: float
    penalty: Penalty
    patience: int
    columns: Columns
    ranks: bool


@dataclass
class Tree:
    """Growing tree: its nodes in the order of their splits, and the sums, the bounds and the path of each node."""

    column: list[int] = field(default_factory=lambda: [-1])
    cut: list[int] = field(default_factory=lambda: [0])
    default_left: list[int] = field(default_factory=lambda: [0])
    gain: list[float] = field(default_factory=lambda: [0.0])
    sums: list[Sums] = field(default_factory=lambda: [np.zeros(2, dtype=np.int64)])
    bounds: list[tuple[float, float]] = field(default_factory=lambda: [(-np.inf, np.inf)])
    path: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])

    def split(self, node: int, splits: Splits, place: int, penalty: Penalty) -> None:
        """Split a leaf by the split at `place`."""
        self.column[node], self.cut[node] = int(splits.column[place]), int(splits.cut[place])
        self.default_left[node], self.gain[node] = int(splits.default_left[place]), float(splits.gain[place])
        for sums in (splits.left[place], splits.right[place]):
            self.column.append(-1)
            self.cut.append(0)
            self.default_left.append(0)
            self.gain.append(0.0)
            self.sums.append(sums)
            self.path.append(self.path[node] | {self.column[node]})
        self.bounds += self._bounds_below(node, splits, place, penalty)

    def _bounds_below(self, node: int, splits: Splits, place: int, penalty: Penalty) -> list[tuple[float, float]]:
        """Return the bounds of both children: the middle of their steps divides those of the node, as in xgboost."""
        low, high = self.bounds[node]
        direction = penalty.monotone[self.column[node]] if penalty.monotone else 0
        if not direction:
            return [(low, high)] * 2
        sides = np.stack([splits.left[place], splits.right[place]])
        left, right = newton_steps(sides, penalty, np.array([self.bounds[node]] * 2, dtype=np.float32))
        middle = float((left + right) / np.float32(2.0))
        below, above = (low, middle), (middle, high)
        return [below, above] if direction > 0 else [above, below]

    @property
    def splits(self) -> messages.Trees:
        """Tree without values of its leaves."""
        column = np.array(self.column, dtype=np.int32)
        sides, none = np.array(self.default_left, dtype=np.uint8), np.zeros(len(column), dtype=np.float32)
        return messages.Trees(np.zeros(1, dtype=np.int32), column, np.array(self.cut, dtype=np.int32), sides, none)

    def grown(self, learning_rate: float, penalty: Penalty) -> messages.Grown:
        """Return the tree with the values of its leaves."""
        sums = np.stack([each[:2] for each in self.sums])
        step = newton_steps(sums, penalty, np.array(self.bounds, dtype=np.float32) if penalty.monotone else None)
        trees = self.splits
        value = np.where(trees.column < 0, step * np.float32(learning_rate), np.float32(0.0)).astype(np.float32)
        return messages.Grown(
            trees.roots,
            trees.column,
            trees.cut,
            trees.default_left,
            value,
            np.array(self.gain, dtype=np.float32),
            (sums[:, 1] * penalty.curvature_unit).astype(np.float32),
            np.where(trees.column < 0, value, step).astype(np.float32),
        )


class Growth:
    """One round: the growing trees, and the sums of the level above."""

    def __init__(
        self, session: Session, rounds: Rounds[messages.Grown], start: messages.Start, plan: Plan, n_initial: int
    ) -> None:
        self._session, self._rounds, self._start, self._plan = session, rounds, start, plan
        self._n_finished = len(rounds.state.roots) // len(start.base)
        # Rounds that all sites have: without the last one until they answer for the first time.
        self._since = 0 if len(rounds.state.roots) == n_initial else self._n_finished - 1
        self._trees = [Tree() for _ in start.base]
        self._above: dict[tuple[int, int], Sums] = {}
        self._sites: tuple[str, ...] = ()

    def run(self) -> messages.Grown:
        """Return the trees of the round."""
        frontier: Places = [(tree, 0) for tree in range(len(self._trees))]
        for depth in range(self._plan.max_depth):
            frontier = self._split(frontier, self._sum(frontier), depth)
            if not frontier:
                break
        grown = messages.Grown.nothing()
        for tree in self._trees:
            grown = grown.with_trees(tree.grown(self._plan.learning_rate, self._plan.penalty))
        return grown

    def _split(self, frontier: Places, sums: dict[tuple[int, int], Sums], depth: int) -> Places:
        """Split each leaf of the frontier with a sufficient gain; return the new leaves."""
        first = self._start.first
        stacked = np.stack([sums[place] for place in frontier])
        if frontier[0][1] == 0:
            for (number, _), total in zip(frontier, stacked[:, : first[1]].sum(axis=1), strict=True):
                self._trees[number].sums[0] = total
        penalty, bounds = self._plan.penalty, None
        if penalty.monotone:
            bounds = np.array([self._trees[tree].bounds[node] for tree, node in frontier], dtype=np.float32)
        permitted = None if self._plan.columns.is_free else self._permitted(frontier, depth)
        splits = find_splits(stacked, first, penalty, permitted=permitted, bounds=bounds)
        below: Places = []
        self._above = {}
        for place in np.flatnonzero(splits.column >= 0).tolist():
            number, node = frontier[place]
            tree = self._trees[number]
            below += [(number, len(tree.column)), (number, len(tree.column) + 1)]
            self._above |= dict.fromkeys(below[-2:], sums[frontier[place]])
            tree.split(node, splits, place, penalty)
        return below

    def _permitted(self, frontier: Places, depth: int) -> NDArray[np.bool_]:
        """Return the columns on which each leaf of the frontier may be split, shape (s, d)."""
        n_before = len(self._rounds.state.roots)
        rules, trees = self._plan.columns, self._trees
        return np.stack(
            [rules.permitted(n_before + tree, depth, node, trees[tree].path[node]) for tree, node in frontier]
        )

    def _sum(self, frontier: Places) -> dict[tuple[int, int], Sums]:
        """Return the sums by cell of every leaf of the frontier.

        Sites return sums of the lighter of two siblings; those of the other are the difference from the sums of their
        parent. After the loss of a site the sums of the parent may contain its records, so sites return both.
        """
        while True:
            before, wanted = self._session.sites, frontier
            if self._sites == before:
                wanted = [place for place in frontier if self._is_lighter(*place)]
            sums = self._ask(wanted)
            if self._session.sites == before:
                break
        self._sites = before
        for tree, node in set(frontier) - set(wanted):
            sums[tree, node] = self._above[tree, node] - sums[tree, _sibling(node)]
        return sums

    def _ask(self, wanted: Places) -> dict[tuple[int, int], Sums]:
        finished = messages.Trees.none()
        if self._since < self._n_finished:
            finished = self._rounds.state.slice(self._since * len(self._trees))
        growing = messages.Trees.none()
        offsets = []
        for tree in self._trees:
            offsets.append(len(growing.column))
            growing = growing.followed_by(tree.splits)
        leaves = [offsets[tree] + node for tree, node in wanted]
        counted = bool(self._plan.penalty.least_records)
        request = messages.Level.of(self._since, finished, growing, leaves, counted=counted)
        answer = self._session.sum(BoostingSite.sum_gradients, request)
        self._since = self._n_finished
        if wanted[0][1] == 0:
            self._rounds.record(loss=mean_loss(answer.losses, self._start))
        return dict(zip(wanted, answer.sums, strict=True))

    def _is_lighter(self, tree: int, node: int) -> bool:
        sums = self._trees[tree].sums
        return node == 0 or (int(sums[node][1]), node) < (int(sums[_sibling(node)][1]), _sibling(node))


class Watched:
    """Validation records, whose loss is computed in a separate session."""

    def __init__(self, session: Session | None, start: messages.Start, *, ranks: bool) -> None:
        self._session, self._start, self._ranks = session, start, ranks
        self._n_sent = 0
        if session is not None:
            session.ask(BoostingSite.begin, start)

    def scores(self, grown: messages.Grown) -> dict[str, float]:
        """Return the mean loss under the trees so far, and the area under the curve; empty without records."""
        session, n_groups = self._session, len(self._start.base)
        if session is None:
            return {}
        answer = session.sum(BoostingSite.sum_losses, finished(grown, self._n_sent, n_groups))
        scores = {"watched_loss": mean_loss(answer.losses, self._start)}
        self._n_sent = len(grown.roots) // n_groups
        if self._ranks:

            def count(borders: NDArray[np.float32]) -> Sums:
                none = finished(grown, self._n_sent, n_groups)
                request = messages.Ranking(**none.fields, since=none.since, borders=borders)
                return session.sum(BoostingSite.count_ranks, request).sums

            scores["watched_auc"], scores["watched_auc_error"] = find_area(count)
            if np.isnan(scores["watched_auc"]):
                raise DataError(
                    "validation records must be of two classes; got one class",
                    where="validation",
                    hint='Add validation records, or set eval_metric="logloss".',
                )
        return scores


def grow_trees(
    session: Session, start: messages.Start, plan: Plan, watched: Session | None, initial: messages.Grown
) -> tuple[messages.Grown, History]:
    """Grow trees after initial ones; return all, and the scores by round.

    The training loss is that before a round, and the scores of the validation records are those after it.
    """
    rounds = session.rounds(plan.n_rounds, messages.Grown, lambda: initial, name="trees")
    validation = Watched(watched, start, ranks=plan.ranks)
    n_initial = len(initial.roots)
    for _ in rounds:
        rounds.state = rounds.state.with_trees(Growth(session, rounds, start, plan, n_initial).run())
        scores = validation.scores(rounds.state)
        if scores:
            rounds.record(**scores)
            if plan.patience and _is_stale([*_watched(rounds.history), _to_lower(scores)], plan.patience):
                rounds.stop()
    return rounds.state, rounds.history


def closing_loss(session: Session, start: messages.Start, grown: messages.Grown) -> float:
    """Return the mean loss of the training records under all trees."""
    n_groups = len(start.base)
    since = max(0, len(grown.roots) // n_groups - 1)

    def request() -> messages.Losses:
        return session.sum(BoostingSite.sum_losses, finished(grown, since, n_groups))

    return mean_loss(session.once("losses", messages.Losses, request).losses, start)


def finished(grown: messages.Trees, since: int, n_groups: int) -> messages.Finished:
    """Return the request with the trees after the first `since` rounds."""
    return messages.Finished(**grown.slice(since * n_groups).fields, since=since)


def mean_loss(losses: Sums, start: messages.Start) -> float:
    """Return the mean loss, in the unit of the outcome."""
    weight = float(losses[1]) * 2.0 ** (start.weight_exponent or 0)
    mean = float(losses[0]) * 2.0**start.loss_exponent / weight if weight else 0.0
    return float(np.sqrt(max(mean, 0.0))) if start.objective == "reg:squarederror" else mean


def best_round(history: History) -> int:
    """Return the index of the round with the best validation metric; of the last round without validation records."""
    scores = _watched(history)
    return int(first_least(scores)) if scores else len(history) - 1


def _watched(history: History) -> list[float]:
    return [_to_lower(each) for each in history if "watched_loss" in each]


def _to_lower(scores: Mapping[str, float]) -> float:
    """Return the score by which the fit stops, such that lower is better."""
    return -scores["watched_auc"] if "watched_auc" in scores else scores["watched_loss"]


def _is_stale(losses: list[float], patience: int) -> bool:
    return len(losses) - 1 - int(first_least(losses)) >= patience


def _sibling(node: int) -> int:
    return node + 1 if node % 2 else node - 1


def to_ensemble(start: messages.Start, grown: messages.Grown) -> Ensemble:
    """Return the trees with thresholds in the units of the columns instead of numbers of bins."""
    n_groups, inner = len(start.base), grown.column >= 0
    first = np.append(0, np.cumsum(start.n_cuts)).astype(np.int64)
    column, cut = grown.column[inner], grown.cut[inner].astype(np.int64)
    padded = np.append(start.cuts, np.float32(0.0))
    threshold = np.zeros(len(grown.column), dtype=np.float32)
    at_cut = padded[np.minimum(first[column] + np.maximum(cut, 0), len(start.cuts))]
    limit = np.float32(LARGEST_VALUE)
    threshold[inner] = np.where(cut < 0, -limit, np.where(cut >= start.n_cuts[column], limit, at_cut))
    return Ensemble(
        start.objective,
        start.columns,
        start.classes,
        start.base,
        grown.roots,
        (np.arange(len(grown.roots)) % n_groups).astype(np.int32),
        grown.column,
        threshold,
        grown.default_left,
        grown.value,
        grown.gain,
        grown.cover,
        grown.weight,
        power=start.power,
        scale=start.scale,
        distribution=start.distribution,
        margins=start.margins,
        levels=start.levels,
    ).check()


def to_grown(ensemble: Ensemble, start: messages.Start) -> messages.Grown:
    """Return the trees on the bins of cuts that contain all thresholds; the inverse of :func:`to_ensemble`."""
    ends = np.append(0, np.cumsum(start.n_cuts)).tolist()
    cut = np.zeros(len(ensemble.column), dtype=np.int32)
    for column in range(len(start.n_cuts)):
        here = ensemble.column == column
        threshold, cuts = ensemble.threshold[here], start.cuts[ends[column] : ends[column + 1]]
        cut[here] = np.where(threshold <= -np.float32(LARGEST_VALUE), -1, np.searchsorted(cuts, threshold))
    nodes = (ensemble.default_left, ensemble.value, ensemble.gain, ensemble.cover, ensemble.weight)
    return messages.Grown(ensemble.roots, ensemble.column, cut, *nodes)
