"""Rounds of FedHazardBoost: each round grows one tree from histograms summed over the sites.

Before the first round, each site returns counts of its patients by interval, and the coordinator sends the initial log
odds that follow from their sums.

Each round grows one tree level by level (:mod:`multicentre.trees.growth`). For each level, each site adds the finished
trees to the margins of its patients, and returns sums of slopes and curvatures of the log-loss by leaf and bin. The
coordinator splits each leaf at the cut with the largest gain.

The rounds stop after ``n_estimators`` trees, or after a tree without a split.

With early stopping, there is one pass per fold before these rounds. Its trees do not use the patients of the fold, and
sites also return the log-loss of these patients. A pass stops early if this loss does not decrease for
``n_iter_no_change`` trees. The number of trees with the smallest log-loss over all folds then replaces
``n_estimators``, and the rounds use all patients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.maths import empirical_logits, find_splits, first_cells, leaf_values
from multicentre.survival.hazard_boost.site import HazardSite
from multicentre.trees.growth import Round, is_stale
from multicentre.trees.splits import Splits

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
# Log-losses are summed as integers, in units of 2^-20.
LOSS_UNIT = 2.0**20
# Folds of early stopping. More folds take more passes; five were not better than three on the data sets that chose it.
N_FOLDS = 3


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    n_estimators: int
    max_depth: int
    learning_rate: float
    l2_regularization: float
    least: float
    n_iter_no_change: int


class HazardGains:
    """Criterion of boosted hazards: the gain of the log-loss."""

    def __init__(self, first: Sums, plan: Plan) -> None:
        self.first, self._plan = first, plan

    def find_splits(self, trees: messages.Ensemble, leaves: Integers, sums: Sums, depth: int) -> Splits:
        """Return the split of each leaf."""
        return find_splits(sums, self.first, self._plan.l2_regularization, self._plan.least)

    def describe_leaves(self, totals: Sums) -> dict[str, Floats]:
        """Return the values of new leaves."""
        return {"value": leaf_values(totals, self._plan.l2_regularization, self._plan.learning_rate)}


class HazardRound(Round[messages.Ensemble]):
    """Round that records the log-loss before its tree."""

    def __init__(self, session: Session, rounds: Rounds[messages.Ensemble]) -> None:
        super().__init__(session, rounds.state)
        self._rounds = rounds

    def run(self, criterion: HazardGains, max_depth: int) -> messages.Ensemble:
        """Return the tree of the round."""
        tree = self.grow(messages.Ensemble.leaves(1), criterion, max_depth)
        return replace(tree, value=np.where(tree.column < 0, tree.value, 0.0))

    def request_sums(
        self, since: int, finished: messages.Ensemble, growing: messages.Ensemble, wanted: Integers
    ) -> Sums:
        """Return slopes and curvatures of the wanted leaves."""
        answer = self._session.sum(HazardSite.sum_slopes, messages.Level.of(since, finished, growing, wanted))
        if len(growing.column) == 1:
            (loss, n_seen), (held_out_loss, n_held_out) = (answer.losses / [LOSS_UNIT, 1.0]).tolist()
            self._rounds.record(loss=loss / max(n_seen, 1.0))
            if n_held_out:
                self._rounds.record(held_out_loss=held_out_loss / n_held_out, held_out=n_held_out)
        return np.stack([answer.slopes, answer.curvatures], axis=-1)


def count_intervals(session: Session) -> Floats:
    """Return the initial log odds of the hazard of all patients, shape (K,)."""
    counts = session.once(
        "intervals", messages.IntervalCounts, lambda: session.sum(HazardSite.count_intervals, Nothing())
    )
    return empirical_logits(counts.events, counts.leaving)


def cross_validate_trees(session: Session, agreed: Prepared, beginning: messages.InitialState, plan: Plan) -> Floats:
    """Return the mean log-loss of held-out patients by number of trees from 0, over all folds; empty without patients.

    A fold whose pass stopped early keeps its last loss, which is above its smallest.
    """
    passes = [
        grow_trees(session, agreed, replace(beginning, held_out=fold), plan)[1]
        for fold in range(1, beginning.n_folds + 1)
    ]
    losses, n_held_out = np.zeros(max(map(len, passes))), 0.0
    for history in passes:
        sums = [each["held_out_loss"] * each["held_out"] for each in history if each.get("held_out")]
        if sums:
            losses += np.pad(sums, (0, len(losses) - len(sums)), mode="edge")
            n_held_out += history[0]["held_out"]
    return losses / n_held_out if n_held_out else np.zeros(0)


def grow_trees(
    session: Session, agreed: Prepared, beginning: messages.InitialState, plan: Plan
) -> tuple[messages.Ensemble, History]:
    """Grow one tree per round, in a pass that begins with no tree."""
    name = f"trees-without-fold-{beginning.held_out}" if beginning.held_out else "trees"

    def begin() -> Acknowledgement:
        session.ask(HazardSite.begin, beginning)
        return Acknowledgement()

    session.once(f"begun-{name}", Acknowledgement, begin)
    criterion = HazardGains(first_cells(agreed.n_bins, len(agreed.times)), plan)
    rounds = session.rounds(plan.n_estimators, messages.Ensemble, messages.Ensemble.none, name=name)
    for _ in rounds:
        tree = HazardRound(session, rounds).run(criterion, plan.max_depth)
        rounds.state = rounds.state.followed_by(tree)
        losses = [each.get("held_out_loss", np.inf) for each in [*rounds.history, rounds.metrics]]
        # The loss of a round is that before its tree.
        if len(tree.column) == 1 or (np.isfinite(losses[-1]) and is_stale(losses, plan.n_iter_no_change)):
            rounds.stop()
    return rounds.state, rounds.history


def gain_by_column(trees: messages.Ensemble, n_columns: int) -> Floats:
    """Return the sum of the gains of the splits on each column, shape (n_columns,)."""
    total, ends = np.zeros(n_columns), np.append(trees.roots[1:], len(trees.column))
    for root, end in zip(trees.roots.tolist(), ends.tolist(), strict=True):
        inner = root + np.flatnonzero(trees.column[root:end] >= 0)
        total += np.bincount(trees.column[inner], trees.gain[inner], minlength=n_columns)
    return total
