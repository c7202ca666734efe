"""Rounds of FedHazardBoost: each round grows one tree from histograms summed over the sites.

Before the first round, each site returns counts of its patients by interval, and the coordinator sends the initial log
odds that follow from their sums.

One round consists of, for each level of the tree:

1. The coordinator sends the last finished tree, the growing tree, and the leaves to sum: the lighter of two siblings.
2. Each site adds the finished tree to the margins of its patients, and returns sums of slopes and curvatures of the
   log-loss by leaf and bin.
3. The coordinator adds up the sums, computes those of the other siblings as differences, and splits each leaf at the
   cut with the largest gain.

The rounds stop after ``n_estimators`` trees, or after a tree without a split.

With early stopping, there is one pass per fold before these rounds. Its trees do not use the patients of the fold, and
sites also return the log-loss of these patients. A pass stops early if this loss does not decrease for
``n_iter_no_change`` trees. The number of trees with the smallest log-loss over all folds then replaces
``n_estimators``, and the rounds use all patients.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement
from multicentre.core.tie_breaking import first_least
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.maths import empirical_logits, find_splits, first_cells, leaf_values
from multicentre.survival.hazard_boost.site import HazardSite

Floats = NDArray[np.float64]
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


@dataclass
class Growing:
    """Growing tree: its nodes in order of creation, the sums at each node, and the sites behind the sums."""

    nodes: list[list[int]] = field(default_factory=lambda: [[-1, -1, -1, -1]])
    sums: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    sites: tuple[str, ...] = ()

    def split(self, node: int, column: int, cut: int, slopes: Sums, curvatures: Sums) -> tuple[int, int]:
        """Split a leaf, and return its children."""
        left = len(self.nodes)
        self.nodes[node] = [column, cut, left, left + 1]
        self.nodes += [[-1, -1, -1, -1] for _ in range(2)]
        self.sums += zip(slopes.tolist(), curvatures.tolist(), strict=True)
        return left, left + 1

    def lighter(self, node: int) -> bool:
        """Return True if a child's curvature is below its sibling's, or equal and it is the left one."""
        sibling = node + 1 if node % 2 else node - 1
        return (self.sums[node][1], node) < (self.sums[sibling][1], sibling)

    def tree(self, l2_regularization: float = 0.0, learning_rate: float = 0.0) -> messages.Tree:
        """Return the tree, with the values of its leaves if there is a learning rate."""
        column, cut, left, right = np.array(self.nodes, dtype=np.int32).T.copy()
        value = np.zeros(len(column))
        if learning_rate:
            sums = np.array(self.sums, dtype=np.int64).T
            value = np.where(column < 0, leaf_values(sums[0], sums[1], l2_regularization, learning_rate), 0.0)
        return messages.Tree(column, cut, left, right, value)


def count_intervals(session: Session) -> Floats:
    """Return the initial log odds of the hazard of all patients, shape (K,)."""
    counts = session.once(
        "intervals", messages.IntervalCounts, lambda: session.sum(HazardSite.count_intervals, Nothing())
    )
    return empirical_logits(counts.events, counts.leaving)


def cross_validate_trees(session: Session, agreed: Agreed, beginning: messages.Beginning, plan: Plan) -> Floats:
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
    session: Session, agreed: Agreed, beginning: messages.Beginning, plan: Plan
) -> tuple[messages.Ensemble, History]:
    """Grow one tree per round, in a pass that begins with no tree."""
    name = f"trees-without-fold-{beginning.held_out}" if beginning.held_out else "trees"

    def begin() -> Acknowledgement:
        session.ask(HazardSite.begin, beginning)
        return Acknowledgement()

    session.once(f"begun-{name}", Acknowledgement, begin)
    first = first_cells(agreed.n_bins, len(agreed.times))
    rounds = session.rounds(
        plan.n_estimators, messages.Ensemble, lambda: messages.Ensemble.empty(len(first) - 1), name=name
    )
    for number in rounds:
        growing, gain = _grow(session, rounds, first, plan)
        rounds.state = rounds.state.with_tree(growing.tree(plan.l2_regularization, plan.learning_rate), gain)
        if len(growing.nodes) == 1 or _is_stale(rounds, number, plan.n_iter_no_change):
            rounds.stop()
    return rounds.state, rounds.history


def _grow(session: Session, rounds: Rounds[messages.Ensemble], first: Sums, plan: Plan) -> tuple[Growing, Floats]:
    growing, gain = Growing(), np.zeros(len(first) - 1)
    frontier, parent_sums = [0], dict[int, tuple[Sums, Sums]]()
    for _ in range(plan.max_depth):
        sums = _sums(session, rounds, growing, frontier, parent_sums)
        if frontier == [0]:
            growing.sums[0] = (int(sums[0][0][: first[1]].sum()), int(sums[0][1][: first[1]].sum()))
        slopes, curvatures = (np.stack([sums[node][k] for node in frontier]) for k in range(2))
        splits = find_splits(slopes, curvatures, first, plan.l2_regularization, plan.least)
        split: list[int] = []
        parent_sums = {}
        for place in np.flatnonzero(splits.gain > 0).tolist():
            node, cell = frontier[place], int(splits.cell[place])
            column = int(np.searchsorted(first, cell, side="right")) - 1
            sides = growing.split(node, column, cell - int(first[column]), splits.slope[place], splits.curvature[place])
            gain[column] += splits.gain[place]
            split += sides
            parent_sums |= dict.fromkeys(sides, sums[node])
        frontier = split
        if not frontier:
            break
    return growing, gain


def _sums(
    session: Session,
    rounds: Rounds[messages.Ensemble],
    growing: Growing,
    frontier: list[int],
    parent_sums: dict[int, tuple[Sums, Sums]],
) -> dict[int, tuple[Sums, Sums]]:
    """Return slopes and curvatures by cell of every leaf at the frontier.

    Only the sums of the lighter of two siblings are requested; those of the other are the parent's minus these. If a
    site is lost during a sum, the sum may or may not include its patients. Then the sums of both siblings are requested
    again, so that all sums of a level are of the same patients.
    """
    while True:
        sites, requested = session.sites, frontier
        if growing.sites == sites:
            requested = [node for node in frontier if growing.lighter(node)]
        sums = _ask(session, rounds, growing, requested)
        if session.sites == sites:
            break
    growing.sites = sites
    for node in set(frontier) - set(requested):
        sibling = node + 1 if node % 2 else node - 1
        sums[node] = (parent_sums[node][0] - sums[sibling][0], parent_sums[node][1] - sums[sibling][1])
    return sums


def _ask(
    session: Session, rounds: Rounds[messages.Ensemble], growing: Growing, wanted: list[int]
) -> dict[int, tuple[Sums, Sums]]:
    trees = rounds.state
    leaves = np.array(wanted, dtype=np.int32)
    request = messages.Level.of(len(trees.roots), growing.tree(), trees.last_tree, leaves)
    answer = session.sum(HazardSite.sum_slopes, request)
    if wanted == [0]:
        (loss, n_seen), (held_out_loss, n_held_out) = (answer.losses / [LOSS_UNIT, 1.0]).tolist()
        rounds.record(loss=loss / max(n_seen, 1.0))
        if n_held_out:
            rounds.record(held_out_loss=held_out_loss / n_held_out, held_out=n_held_out)
    return {node: (answer.slopes[k], answer.curvatures[k]) for k, node in enumerate(wanted)}


def _is_stale(rounds: Rounds[messages.Ensemble], number: int, n_iter_no_change: int) -> bool:
    """Return True if the held-out log-loss has not decreased for `n_iter_no_change` trees.

    The loss of a round is measured before its tree is added.
    """
    losses = [each.get("held_out_loss", np.inf) for each in rounds.history]
    losses.append(rounds.metrics.get("held_out_loss", np.inf))
    return bool(np.isfinite(losses[-1]) and number - 1 - int(first_least(losses)) >= n_iter_no_change)
