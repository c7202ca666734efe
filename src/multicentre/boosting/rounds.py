"""Rounds of federated XGBoost, which grow trees level by level from histograms summed over sites.

Before the first round, the sites agree on columns, classes, the first margins and the cuts of every column
(:mod:`multicentre.boosting.agreement`), and the coordinator sends this start to every site.

One round grows one tree, or one per class if there are more than two classes. For each level of these trees:

1. The coordinator sends the trees of the last finished round, the growing trees, and the leaves to sum: of two
   siblings, the one with the smaller sum of curvatures.
2. Each site adds the finished trees to the margins of its records. It returns the sum of their losses, and sums of
   slopes and curvatures by leaf and bin, with ``min_samples_leaf`` also numbers of records.
3. The coordinator adds up the sums and computes those of the other siblings as differences from their parents. It
   splits each leaf at the cut with the largest gain, if that gain is sufficient.

If a site is lost, the coordinator requests the sums of both siblings, since the sums of their parents may contain the
records of that site.

A round ends when no leaf is split, or at ``max_depth``. If there are validation records, the coordinator then sends the
new trees in a separate session, and each site returns the sum of their losses. The rounds stop after ``n_estimators``
rounds, or if the validation loss has no new minimum in ``n_iter_no_change`` rounds. After the last round, each site
returns the sum of the losses of its training records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.maths import Penalty, Splits, find_splits, newton_steps
from multicentre.boosting.site import BoostingSite
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.core.tie_breaking import first_least

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
        Rounds without a lower validation loss after which the fit stops; 0 for no early stopping.
    """

    n_rounds: int
    max_depth: int
    learning_rate: float
    penalty: Penalty
    patience: int


@dataclass
class Tree:
    """Growing tree: its nodes in the order of their splits, and the sums per node."""

    column: list[int] = field(default_factory=lambda: [-1])
    cut: list[int] = field(default_factory=lambda: [0])
    default_left: list[int] = field(default_factory=lambda: [0])
    gain: list[float] = field(default_factory=lambda: [0.0])
    sums: list[Sums] = field(default_factory=lambda: [np.zeros(2, dtype=np.int64)])

    def split(self, node: int, splits: Splits, place: int) -> None:
        """Split a leaf by the split at `place`."""
        self.column[node], self.cut[node] = int(splits.column[place]), int(splits.cut[place])
        self.default_left[node], self.gain[node] = int(splits.default_left[place]), float(splits.gain[place])
        for sums in (splits.left[place], splits.right[place]):
            self.column.append(-1)
            self.cut.append(0)
            self.default_left.append(0)
            self.gain.append(0.0)
            self.sums.append(sums)

    def grown(self, learning_rate: float, penalty: Penalty) -> messages.Grown:
        """Return the tree with the values of its leaves."""
        sums = np.stack([each[:2] for each in self.sums])
        step = newton_steps(sums, penalty)
        column = np.array(self.column, dtype=np.int32)
        value = np.where(column < 0, step * np.float32(learning_rate), np.float32(0.0)).astype(np.float32)
        return messages.Grown(
            np.zeros(1, dtype=np.int32),
            column,
            np.array(self.cut, dtype=np.int32),
            np.array(self.default_left, dtype=np.uint8),
            value,
            np.array(self.gain, dtype=np.float32),
            (sums[:, 1] * penalty.curvature_unit).astype(np.float32),
            np.where(column < 0, value, step).astype(np.float32),
        )


class Growth:
    """One round: the growing trees, and the sums of the level above."""

    def __init__(self, session: Session, rounds: Rounds[messages.Grown], start: messages.Start, plan: Plan) -> None:
        self._session, self._rounds, self._start, self._plan = session, rounds, start, plan
        self._trees = [Tree() for _ in start.base]
        self._above: dict[tuple[int, int], Sums] = {}
        self._sites: tuple[str, ...] = ()

    def run(self) -> messages.Grown:
        """Return the trees of the round."""
        frontier: Places = [(tree, 0) for tree in range(len(self._trees))]
        for _ in range(self._plan.max_depth):
            frontier = self._split(frontier, self._sum(frontier))
            if not frontier:
                break
        grown = messages.Grown.nothing()
        for tree in self._trees:
            grown = grown.with_trees(tree.grown(self._plan.learning_rate, self._plan.penalty))
        return grown

    def _split(self, frontier: Places, sums: dict[tuple[int, int], Sums]) -> Places:
        """Split each leaf of the frontier with a sufficient gain; return the new leaves."""
        first = self._start.first
        stacked = np.stack([sums[place] for place in frontier])
        if frontier[0][1] == 0:
            for (number, _), total in zip(frontier, stacked[:, : first[1]].sum(axis=1), strict=True):
                self._trees[number].sums[0] = total
        splits = find_splits(stacked, first, self._plan.penalty)
        below: Places = []
        self._above = {}
        for place in np.flatnonzero(splits.column >= 0).tolist():
            number, node = frontier[place]
            tree = self._trees[number]
            below += [(number, len(tree.column)), (number, len(tree.column) + 1)]
            self._above |= dict.fromkeys(below[-2:], sums[frontier[place]])
            tree.split(node, splits, place)
        return below

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
        grown, n_groups = self._rounds.state, len(self._trees)
        growing = messages.Trees.none()
        offsets = []
        for tree in self._trees:
            offsets.append(len(growing.column))
            growing = growing.followed_by(tree.grown(0.0, self._plan.penalty).trees)
        since = max(0, len(grown.roots) // n_groups - 1)
        leaves = [offsets[tree] + node for tree, node in wanted]
        counted = bool(self._plan.penalty.least_records)
        request = messages.Level.of(since, grown.slice(since * n_groups), growing, leaves, counted=counted)
        answer = self._session.sum(BoostingSite.sum_gradients, request)
        if wanted[0][1] == 0:
            self._rounds.record(loss=mean_loss(answer.losses, self._start))
        return dict(zip(wanted, answer.sums, strict=True))

    def _is_lighter(self, tree: int, node: int) -> bool:
        sums = self._trees[tree].sums
        return node == 0 or (int(sums[node][1]), node) < (int(sums[_sibling(node)][1]), _sibling(node))


class Watched:
    """Validation records, whose loss is computed in a separate session."""

    def __init__(self, session: Session | None, start: messages.Start) -> None:
        self._session, self._start = session, start
        self._n_sent = 0
        if session is not None:
            session.ask(BoostingSite.begin, start)

    def loss(self, grown: messages.Grown) -> float | None:
        """Return the mean loss under the trees so far; None without validation records."""
        if self._session is None:
            return None
        n_groups = len(self._start.base)
        answer = self._session.sum(BoostingSite.sum_losses, finished(grown, self._n_sent, n_groups))
        self._n_sent = len(grown.roots) // n_groups
        return mean_loss(answer.losses, self._start)


def grow_trees(
    session: Session, start: messages.Start, plan: Plan, watched: Session | None
) -> tuple[messages.Grown, History]:
    """Grow and return the trees, and the losses by round: training loss before it, validation loss after it."""
    rounds = session.rounds(plan.n_rounds, messages.Grown, messages.Grown.nothing, name="trees")
    validation = Watched(watched, start)
    for _ in rounds:
        rounds.state = rounds.state.with_trees(Growth(session, rounds, start, plan).run())
        loss = validation.loss(rounds.state)
        if loss is not None:
            rounds.record(watched_loss=loss)
            if plan.patience and _is_stale([*_watched(rounds.history), loss], plan.patience):
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
    mean = float(losses[0]) * 2.0**start.loss_exponent / max(float(losses[1]), 1.0)
    return float(np.sqrt(max(mean, 0.0))) if start.objective == "reg:squarederror" else mean


def best_round(history: History) -> int:
    """Return the index of the round with the lowest validation loss; of the last round without validation records."""
    losses = _watched(history)
    return int(first_least(losses)) if losses else len(history) - 1


def _watched(history: History) -> list[float]:
    return [each["watched_loss"] for each in history if "watched_loss" in each]


def _is_stale(losses: list[float], patience: int) -> bool:
    return len(losses) - 1 - int(first_least(losses)) >= patience


def _sibling(node: int) -> int:
    return node + 1 if node % 2 else node - 1
