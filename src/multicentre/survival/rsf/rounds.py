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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.tree import DEEPEST, TreeSettings, thresholds_at
from multicentre.survival.rsf import messages
from multicentre.survival.rsf.maths import (
    batches,
    bits_for,
    draw_columns,
    drawn_total,
    first_words,
    leaf_curves,
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


def grow_forest(session: Session, agreed: Prepared, plan: Plan) -> tuple[messages.Forest, History]:
    """Grow all trees level by level until no leaf can be split."""

    def start() -> messages.Forest:
        samples = session.sum(ForestSite.count_samples, messages.Sampling(plan.seed, plan.n_estimators, plan.n_groups))
        roots = messages.CountedNodes.leaves(plan.n_estimators, counts=samples.counts)
        forest = messages.Forest(**roots.fields, frontier=roots.roots, gain=np.zeros(len(agreed.columns)))
        return _within_reach(forest, plan.settings)

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


def count_leaves(session: Session, agreed: Prepared, plan: Plan, forest: messages.Forest) -> Counts:
    """Return counts of the drawn patients of every leaf by time of the grid, shape (L, 2 K + 1), leaves in order."""
    leaves = np.flatnonzero(forest.column < 0).astype(np.int32)
    fields = np.arange(len(leaves) + 1) * (2 * len(agreed.times) + 1)

    def request() -> messages.Leaves:
        parts = [
            session.sum(ForestSite.count_leaves, _standing(plan.seed, forest, leaves[part]))
            for part in batches(fields, WORDS_AT_ONCE)
        ]
        return messages.Leaves(np.concatenate([part.counts for part in parts]), patients=0)

    return session.once("leaves", messages.Leaves, request).counts


def as_trees(forest: messages.Forest, counts: Counts, agreed: Prepared) -> Trees:
    """Return the forest with thresholds in the units of the columns, and a curve for each leaf."""
    is_leaf = forest.column < 0
    leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1).astype(np.int32)
    n_estimators = len(forest.roots)
    return Trees(
        agreed.times,
        forest.roots,
        np.full(n_estimators, 1.0 / n_estimators),
        forest.column,
        thresholds_at(agreed, forest.column, forest.cut),
        forest.left,
        forest.right,
        leaf,
        leaf_curves(counts),
        patients=0,
    )


def _within_reach(forest: messages.Forest, settings: TreeSettings) -> messages.Forest:
    """Remove leaves from the frontier that are too small to be split."""
    n_patients, n_events = forest.counts[forest.frontier, -2:].T
    enough = (n_patients >= 2 * settings.min_samples_leaf) & (n_events >= max(2 * settings.min_events_leaf, 1))
    return replace(forest, frontier=forest.frontier[enough])


def _find_splits(session: Session, agreed: Prepared, plan: Plan, forest: messages.Forest, number: int) -> Splits:
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
    agreed: Prepared,
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
    request = messages.Level(**standing.fields, n_groups=plan.n_groups, tried=tried, bits=bits)
    answer = session.sum(ForestSite.count_splits, request)
    settings = plan.settings
    return best_splits(
        answer.words, tried, agreed.n_bins, words[:-1] - words[0], bits, plan.n_groups, settings.min_samples_leaf,
        max(settings.min_events_leaf, 1),
    )  # fmt: skip


def _standing(seed: int, forest: messages.Forest, wanted: Integers) -> messages.ForestState:
    """Return the request for some leaves, with their trees only."""
    number = np.repeat(np.arange(len(forest.roots)), np.diff(forest.roots, append=len(forest.column)))
    trees = np.unique(number[wanted])
    is_chosen = np.isin(number, trees)
    places = (np.cumsum(is_chosen) - 1).astype(np.int32)
    return messages.ForestState(
        places[forest.roots[trees]],
        forest.column[is_chosen],
        forest.cut[is_chosen],
        seed,
        trees.astype(np.int32),
        places[wanted],
    )


def _grown(forest: messages.Forest, splits: Splits) -> messages.Forest:
    """Return the forest with the nodes of one more level, which are the new frontier."""
    made = np.flatnonzero(splits.column >= 0)
    column, sides = splits.column[made], splits.sides[made].reshape(2 * len(made), forest.counts.shape[1])
    at = {"column": column, "cut": splits.cut[made]}
    nodes, children = forest.only(messages.CountedNodes).split(forest.frontier[made], at, {"counts": sides})
    gain = forest.gain + np.bincount(column, splits.statistic[made], minlength=len(forest.gain))
    return messages.Forest(**nodes.fields, frontier=children, gain=gain)
