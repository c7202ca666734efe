"""Rounds of federated XGBoost, which grow trees level by level from histograms summed over sites.

Before the first round, the sites agree on columns, classes, the first margins and the cuts of every column
(:mod:`multicentre.boosting.agreement`), and the coordinator sends this start to every site.

One round grows one tree, or one per class if there are more than two classes. The trees
grow level by level (:mod:`multicentre.trees.growth`). For each level, each site adds the finished trees to the margins
of its records. It returns the sum of their losses, and sums of slopes and curvatures by leaf and bin, with
``min_samples_leaf`` also numbers of records. With ``subsample``, sums by leaf and bin are those of the records that the
round draws. The coordinator splits each leaf at the cut with the largest gain, if that gain is sufficient. It leaves
out columns that were not drawn for the node or may not follow those above it, and splits against a monotone constraint.

A round ends when no leaf is split, or at ``max_depth``. If there are validation records, the coordinator then sends the
new trees in a separate session, and each site returns the sum of their losses, and numbers of records by class and
margin if the area under the curve is requested (:mod:`multicentre.boosting.ranking`). The rounds stop after
``n_estimators`` rounds, or if the validation metric does not improve in ``n_iter_no_change`` rounds. After the last
round, each site returns the sum of the losses of its training records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.maths import (
    NO_BOUNDS,
    Columns,
    Penalty,
    Splits,
    bounds_below,
    find_splits,
    newton_steps,
)
from multicentre.boosting.ranking import find_area
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import MAX_VALUE, Ensemble
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.core.tie_breaking import first_least
from multicentre.errors import DataError
from multicentre.trees.growth import Round, is_stale

Sums = NDArray[np.int64]
Integers = NDArray[np.int32]


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


class Gains:
    """Criterion of xgboost for one round, with the bounds and the paths of the leaves that may be split."""

    def __init__(self, start: messages.Start, plan: Plan, n_before: int) -> None:
        self.first = start.first
        self._plan, self._n_before = plan, n_before
        self._bounds = np.tile(NO_BOUNDS, (len(start.base), 1))
        self._paths = [frozenset[int]()] * len(start.base)

    def find_splits(self, trees: messages.BuiltTrees, leaves: Integers, sums: Sums, depth: int) -> Splits:
        """Return the split of each leaf."""
        penalty, columns = self._plan.penalty, self._plan.columns
        permitted = None if columns.is_free else self._permitted(trees, leaves, depth)
        bounds = self._bounds if penalty.monotone else None
        splits = find_splits(sums, self.first, penalty, permitted=permitted, bounds=bounds)
        made = np.flatnonzero(splits.column >= 0)
        self._bounds = bounds_below(splits, made, self._bounds[made], penalty) if penalty.monotone else NO_BOUNDS
        self._paths = [self._paths[place] | {int(splits.column[place])} for place in made for _ in range(2)]
        return splits

    def describe_leaves(self, totals: Sums) -> dict[str, NDArray[np.float32]]:
        """Return the sum of curvatures and the Newton step of each new leaf."""
        penalty = self._plan.penalty
        cover = (totals[:, 1] * penalty.curvature_unit).astype(np.float32)
        return {"cover": cover, "weight": newton_steps(totals, penalty, self._bounds)}

    def _permitted(self, trees: messages.BuiltTrees, leaves: Integers, depth: int) -> NDArray[np.bool_]:
        """Return the columns on which each leaf may be split, shape (s, d)."""
        number = np.searchsorted(trees.roots, leaves, side="right") - 1
        places = (leaves - trees.roots[number]).tolist()
        numbered = zip((self._n_before + number).tolist(), places, self._paths, strict=True)
        return np.stack([self._plan.columns.permitted(tree, depth, node, path) for tree, node, path in numbered])


class BoostingRound(Round[messages.BuiltTrees]):
    """Round that records the loss before its trees."""

    def __init__(
        self, session: Session, rounds: Rounds[messages.BuiltTrees], start: messages.Start, plan: Plan, n_initial: int
    ) -> None:
        super().__init__(session, rounds.state, n_initial, len(start.base))
        self._rounds, self._start, self._plan = rounds, start, plan

    def run(self) -> messages.BuiltTrees:
        """Return the trees of the round."""
        roots = messages.BuiltTrees.leaves(len(self._start.base))
        trees = self.grow(roots, Gains(self._start, self._plan, len(self._rounds.state.roots)), self._plan.max_depth)
        is_leaf, zero = trees.column < 0, np.float32(0.0)
        value = np.where(is_leaf, trees.weight * np.float32(self._plan.learning_rate), zero).astype(np.float32)
        return replace(trees, value=value, weight=np.where(is_leaf, value, trees.weight).astype(np.float32))

    def request_sums(
        self, since: int, finished: messages.BuiltTrees, growing: messages.BuiltTrees, wanted: Integers
    ) -> Sums:
        """Return slopes and curvatures, and numbers of records if required, of the wanted leaves."""
        counted = bool(self._plan.penalty.least_records)
        request = messages.Level.of(since, finished, growing, wanted, counted=counted)
        answer = self._session.sum(BoostingSite.sum_gradients, request)
        if len(growing.column) == len(growing.roots):
            self._rounds.record(loss=mean_loss(answer.losses, self._start))
        return answer.sums


class Watched:
    """Validation records, whose loss is computed in a separate session."""

    def __init__(self, session: Session | None, start: messages.Start, *, ranks: bool) -> None:
        self._session, self._start, self._ranks = session, start, ranks
        self._n_sent = 0
        if session is not None:
            session.ask(BoostingSite.begin, start)

    def scores(self, grown: messages.BuiltTrees) -> dict[str, float]:
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
                request = messages.Ranking(**none.fields, borders=borders)
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
    session: Session, start: messages.Start, plan: Plan, watched: Session | None, initial: messages.BuiltTrees
) -> tuple[messages.BuiltTrees, History]:
    """Grow trees after initial ones; return all, and the scores by round.

    The training loss is that before a round, and the scores of the validation records are those after it.
    """
    rounds = session.rounds(plan.n_rounds, messages.BuiltTrees, lambda: initial, name="trees")
    validation = Watched(watched, start, ranks=plan.ranks)
    n_initial = len(initial.roots)
    for _ in rounds:
        rounds.state = rounds.state.followed_by(BoostingRound(session, rounds, start, plan, n_initial).run())
        scores = validation.scores(rounds.state)
        if scores:
            rounds.record(**scores)
            if plan.patience and is_stale([*_watched(rounds.history), _to_lower(scores)], plan.patience):
                rounds.stop()
    return rounds.state, rounds.history


def closing_loss(session: Session, start: messages.Start, grown: messages.BuiltTrees) -> float:
    """Return the mean loss of the training records under all trees."""
    n_groups = len(start.base)
    since = max(0, len(grown.roots) // n_groups - 1)

    def request() -> messages.Losses:
        return session.sum(BoostingSite.sum_losses, finished(grown, since, n_groups))

    return mean_loss(session.once("losses", messages.Losses, request).losses, start)


def finished(grown: messages.BuiltTrees, since: int, n_groups: int) -> messages.Finished:
    """Return the request with the trees after the first `since` rounds."""
    return messages.Finished(**grown.slice(since * n_groups).fields_for(messages.Finished), since=since)


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


def to_ensemble(start: messages.Start, grown: messages.BuiltTrees) -> Ensemble:
    """Return the trees with thresholds in the units of the columns instead of numbers of bins."""
    n_groups, inner = len(start.base), grown.column >= 0
    first = np.append(0, np.cumsum(start.n_cuts)).astype(np.int64)
    column, cut = grown.column[inner], grown.cut[inner].astype(np.int64)
    padded = np.append(start.cuts, np.float32(0.0))
    threshold = np.zeros(len(grown.column), dtype=np.float32)
    at_cut = padded[np.minimum(first[column] + np.maximum(cut, 0), len(start.cuts))]
    limit = np.float32(MAX_VALUE)
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


def to_grown(ensemble: Ensemble, start: messages.Start) -> messages.BuiltTrees:
    """Return the trees on the bins of cuts that contain all thresholds; the inverse of :func:`to_ensemble`."""
    ends = np.append(0, np.cumsum(start.n_cuts)).tolist()
    cut = np.zeros(len(ensemble.column), dtype=np.int32)
    for column in range(len(start.n_cuts)):
        here = ensemble.column == column
        threshold, cuts = ensemble.threshold[here], start.cuts[ends[column] : ends[column + 1]]
        cut[here] = np.where(threshold <= -np.float32(MAX_VALUE), -1, np.searchsorted(cuts, threshold))
    nodes = (ensemble.default_left, ensemble.value, ensemble.gain, ensemble.cover, ensemble.weight)
    return messages.BuiltTrees(ensemble.roots, ensemble.column, cut, *nodes)
