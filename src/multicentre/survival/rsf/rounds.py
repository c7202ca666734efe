"""Rounds of FedRSF: each round grows all trees by one level, from counts summed over the sites.

Before the first round, each site returns counts of the drawn patients of every tree.

One round consists of:

1. The coordinator draws columns for every leaf that may be split, and sends the trees, these leaves and the columns.
2. Each site returns counts of its drawn patients by leaf, column, bin and group of times.
3. The coordinator adds up the counts and splits each leaf at the cut with the largest log-rank statistic.

After the last round, each site returns counts of its drawn patients by leaf and time of the grid. From their sums the
coordinator computes the survival curve of every leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.tree import DEEPEST, TreeSettings
from multicentre.survival.rsf import messages
from multicentre.survival.rsf.maths import (
    batches,
    bits_for,
    draw_columns,
    drawn_total,
    first_words,
    leaf_curves,
    node_places,
)
from multicentre.survival.rsf.site import ForestSite

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Counts = NDArray[np.int64]
# Largest number of words of one sum (8 MiB); larger levels are requested in batches.
WORDS_AT_ONCE = 2**20


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    n_estimators: int
    settings: TreeSettings
    n_groups: int
    seed: int


@dataclass(frozen=True)
class Splits:
    """Best split of every node of a level; column -1 for none."""

    column: Integers
    cut: Integers
    statistic: Floats
    sides: Counts


def grow_forest(session: Session, agreed: Agreed, plan: Plan) -> tuple[messages.Forest, History]:
    """Grow all trees level by level until no leaf can be split."""

    def start() -> messages.Forest:
        samples = session.sum(ForestSite.count_samples, messages.Sampling(plan.seed, plan.n_estimators, plan.n_groups))
        none, trees = np.full(plan.n_estimators, -1, dtype=np.int32), np.arange(plan.n_estimators, dtype=np.int32)
        gain = np.zeros(len(agreed.columns))
        roots = messages.Forest(trees, none, none, none, none, samples.counts, trees, gain)
        return _within_reach(roots, plan.settings)

    depth = DEEPEST if plan.settings.max_depth is None else plan.settings.max_depth
    rounds = session.rounds(depth, messages.Forest, start, name="levels")
    for number in rounds:
        if not len(rounds.state.frontier):
            rounds.stop()
            continue
        splits = _find_splits(session, agreed, plan, rounds.state, number)
        rounds.record(nodes=len(rounds.state.frontier), splits=int((splits.column >= 0).sum()))
        rounds.state = _within_reach(_grown(rounds.state, splits), plan.settings)
    return rounds.state, rounds.history


def count_leaves(session: Session, agreed: Agreed, plan: Plan, forest: messages.Forest) -> Counts:
    """Return counts of the drawn patients of every leaf by time of the grid, shape (L, 2 K + 1), leaves in order."""
    leaves = np.flatnonzero(forest.column < 0).astype(np.int32)
    leaves = leaves[np.argsort(forest.tree[leaves], kind="stable")]
    fields = np.arange(len(leaves) + 1) * (2 * len(agreed.times) + 1)

    def request() -> messages.Leaves:
        parts = [
            session.sum(ForestSite.count_leaves, _standing(plan.seed, forest, leaves[part]))
            for part in batches(fields, WORDS_AT_ONCE)
        ]
        return messages.Leaves(np.concatenate([part.counts for part in parts]), patients=0)

    return session.once("leaves", messages.Leaves, request).counts


def as_trees(forest: messages.Forest, counts: Counts, agreed: Agreed) -> Trees:
    """Return the forest with thresholds in the units of the columns, and a curve for each leaf."""
    order, places = node_places(forest.tree)
    column, cut = forest.column[order], forest.cut[order]
    inner = column >= 0
    left, right = (np.where(inner, places[each[order]], -1).astype(np.int32) for each in (forest.left, forest.right))
    threshold = np.zeros(len(column))
    threshold[inner] = agreed.edges[agreed.first[column[inner]] + cut[inner]]
    leaf = np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32)
    n_estimators = int(forest.tree.max()) + 1
    return Trees(
        agreed.times,
        np.searchsorted(forest.tree[order], np.arange(n_estimators)).astype(np.int32),
        np.full(n_estimators, 1.0 / n_estimators),
        column,
        threshold,
        left,
        right,
        leaf,
        leaf_curves(counts),
        patients=0,
    )


def _within_reach(forest: messages.Forest, settings: TreeSettings) -> messages.Forest:
    """Remove leaves from the frontier that are too small to be split."""
    n_patients, n_events = forest.counts[forest.frontier, -2:].T
    enough = (n_patients >= 2 * settings.min_samples_leaf) & (n_events >= max(2 * settings.min_events_leaf, 1))
    return _replaced(forest, frontier=forest.frontier[enough])


def _find_splits(session: Session, agreed: Agreed, plan: Plan, forest: messages.Forest, number: int) -> Splits:
    from multicentre.survival.kernels.logrank_sums import n_words

    max_bins, frontier = agreed.n_bins, forest.frontier
    generator = np.random.default_rng([plan.seed, number])
    tried = draw_columns(generator, len(frontier), max_bins, plan.settings.number_of_columns(len(max_bins)))
    if not tried.shape[1]:
        none = np.full(len(frontier), -1, dtype=np.int32)
        return Splits(none, none, np.zeros(len(frontier)), np.zeros((0, 2, forest.counts.shape[1]), dtype=np.int64))
    bits = bits_for(drawn_total(forest.counts[frontier]))
    width = np.array([n_words(plan.n_groups, each) for each in bits.tolist()], dtype=np.int64)
    words = first_words(tried, max_bins, width)
    parts = [
        _ask(session, agreed, plan, forest, frontier[part], tried[part], bits[part], words[part.start : part.stop + 1])
        for part in batches(words, WORDS_AT_ONCE)
    ]
    fields = zip(*parts, strict=True)
    return Splits(*(np.concatenate(each) for each in fields))


def _ask(
    session: Session,
    agreed: Agreed,
    plan: Plan,
    forest: messages.Forest,
    wanted: Integers,
    tried: Integers,
    bits: Integers,
    words: Counts,
) -> tuple[Integers, Integers, Floats, Counts]:
    """Return column, cut, statistic and the counts on both sides of the best split of each wanted leaf."""
    from multicentre.survival.kernels.logrank_sums import best_splits

    standing = _standing(plan.seed, forest, wanted)
    trees = {name: getattr(standing, name) for name in messages.Standing.declarations()}
    request = messages.Level(**trees, n_groups=plan.n_groups, tried=tried, bits=bits)
    answer = session.sum(ForestSite.count_splits, request)
    settings = plan.settings
    return best_splits(
        answer.words, tried, agreed.n_bins, words[:-1] - words[0], bits, plan.n_groups, settings.min_samples_leaf,
        max(settings.min_events_leaf, 1),
    )  # fmt: skip


def _standing(seed: int, forest: messages.Forest, wanted: Integers) -> messages.Standing:
    """Return the request for some leaves, with their trees only."""
    trees = np.unique(forest.tree[wanted])
    chosen_nodes = np.flatnonzero(np.isin(forest.tree, trees))
    order, places = node_places(forest.tree[chosen_nodes])
    nodes = chosen_nodes[order]
    place_of = np.full(len(forest.tree), -1, dtype=np.int64)
    place_of[chosen_nodes] = places
    root = np.searchsorted(forest.tree[nodes], trees)
    start = np.repeat(root, np.diff(np.append(root, len(nodes))))
    left, right = (
        np.where(forest.column[nodes] >= 0, place_of[each[nodes]] - start, -1).astype(np.int32)
        for each in (forest.left, forest.right)
    )
    return messages.Standing(
        seed,
        trees,
        root.astype(np.int32),
        forest.column[nodes],
        forest.cut[nodes],
        left,
        right,
        place_of[wanted].astype(np.int32),
    )


def _grown(forest: messages.Forest, splits: Splits) -> messages.Forest:
    """Return the forest with the nodes of one more level, which are the new frontier."""
    split_places = np.flatnonzero(splits.column >= 0)
    nodes, n_before = forest.frontier[split_places], len(forest.tree)
    column, cut, left, right = (each.copy() for each in (forest.column, forest.cut, forest.left, forest.right))
    column[nodes], cut[nodes] = splits.column[split_places], splits.cut[split_places]
    left[nodes] = n_before + 2 * np.arange(len(nodes))
    right[nodes] = left[nodes] + 1
    none = np.full(2 * len(nodes), -1, dtype=np.int32)
    column, cut, left, right = (np.concatenate([each, none]) for each in (column, cut, left, right))
    return messages.Forest(
        np.concatenate([forest.tree, np.repeat(forest.tree[nodes], 2)]),
        column,
        cut,
        left,
        right,
        np.concatenate([forest.counts, splits.sides[split_places].reshape(2 * len(nodes), forest.counts.shape[1])]),
        np.arange(n_before, n_before + 2 * len(nodes), dtype=np.int32),
        forest.gain
        + np.bincount(splits.column[split_places], splits.statistic[split_places], minlength=len(forest.gain)),
    )


def _replaced(forest: messages.Forest, frontier: Integers) -> messages.Forest:
    nodes = (forest.tree, forest.column, forest.cut, forest.left, forest.right, forest.counts)
    return messages.Forest(*nodes, frontier, forest.gain)
