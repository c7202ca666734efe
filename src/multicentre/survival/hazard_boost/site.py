"""Site part of FedHazardBoost: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

A site stores the margins of its patients. Sums over patients and intervals by bin leave the site, as terms of sums over
sites. Their values are the same masked and unmasked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.maths import MAX_STEP, first_cells, last_intervals
from multicentre.trees.site import TreePart
from multicentre.trees.table import check_leaves, check_splits

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
# Largest numbers of trees of a model and of cells of a sum.
MAX_TREES = 100_000
# Sums of slopes, of curvatures and numbers of patients: three tables of 2^26 64-bit integers, 1.5 GiB.
MAX_CELLS = 2**26
# Largest magnitude of the initial log odds; beyond it a hazard is numerically 0 or 1.
MAX_BASE = 50.0
# Largest number of folds: every fold is a pass over the trees.
MAX_FOLDS = 10


def check_beginning(request: messages.InitialState, n_times: int) -> None:
    """Raise MessageError unless there is a finite initial value per interval, and draws and folds are valid."""
    if len(request.base) != n_times or not (np.abs(request.base) <= MAX_BASE).all():
        raise MessageError(
            f"base must hold {n_times} log odds of magnitude up to {MAX_BASE:g}; got others", where="InitialState.base"
        )
    if not (0 < request.subsample <= 1 and request.seed >= 0):
        raise MessageError(
            f"subsample must be above 0 and at most 1, and seed non-negative; got {request.subsample} and "
            f"{request.seed}",
            where="InitialState",
        )
    if not (0 <= request.held_out <= request.n_folds <= MAX_FOLDS and request.n_folds != 1):
        raise MessageError(
            f"n_folds must be 0 or from 2 to {MAX_FOLDS}, and held_out one of the folds or 0; got {request.n_folds} "
            f"and {request.held_out}",
            where="InitialState",
        )


def check_pass(request: messages.InitialState, before: messages.InitialState) -> None:
    """Raise ConfigurationError unless a pass follows the one before: one per fold in order, then one without held-out.

    Other draws of patients would allow differences between the sums of arbitrary groups.
    """
    terms = [(each.base.tobytes(), each.seed, each.subsample, each.n_folds) for each in (request, before)]
    is_next = before.held_out and request.held_out == (before.held_out + 1) % (before.n_folds + 1)
    if terms[0] != terms[1] or not (is_next or request.held_out == before.held_out):
        raise ConfigurationError(
            "the start must be the same throughout a fit, and folds must be held out in order; got a different one",
            where="begin",
            hint="Start a new fit.",
        )


def check_level(request: messages.Level, n_bins: Sums) -> None:
    """Raise MessageError unless the trees have these columns, of which the last are intervals, and bins at both sides.

    The leaves to sum must be different leaves of the last tree.
    """
    if not 0 <= request.since < MAX_TREES or not 0 < len(request.roots) <= MAX_TREES - request.since:
        raise MessageError(
            f"there must be one growing tree after at most {MAX_TREES - 1} finished ones; got {len(request.roots)} "
            f"trees after {request.since}",
            where="Level.since",
            hint="Fit fewer trees.",
        )
    check_splits(request, n_bins - 1)
    check_leaves(request, request.wanted, int(request.roots[-1]))
    if not (np.abs(request.value) <= MAX_STEP).all():
        raise MessageError(
            f"values of leaves must be at most {MAX_STEP:g} in magnitude; got larger ones", where="Level.value"
        )


class Rows:
    """Margins of every patient in every interval, and the slopes of the log-loss that follow from them.

    Parameters
    ----------
    patients : Patients
    data : SurvivalData
    last : array of shape (n,)
        Last interval in which each patient counts, -1 for none.
    memory : Memory
        Initial log odds, and parameters of the draws of patients.

    Attributes
    ----------
    seen : array of shape (n,)
        Last interval of the patients used for the current tree; -1 for all others.
    losses : array of shape (2, 2)
        Log-loss, in units of 2**-20, and number of patients, for those used in the current tree and for those held out.
    """

    def __init__(self, patients: Patients, data: SurvivalData, last: Integers, memory: messages.Memory) -> None:
        self._binned = patients.binned
        self._happened = patients.happened
        self._last = last
        self._memory = memory
        self._keys = _keys(data) if memory.subsample < 1 or memory.n_folds else None
        self._margins = np.repeat(memory.base[None, :], len(last), axis=0)
        self._n_trees = 0
        self._fewest, self._n_counted = len(last), 0
        self._derive()

    def catch_up(self, trees: messages.Trees) -> None:
        """Add the new trees to the margins in order; after a return to fewer trees, add all of them again."""
        from multicentre.survival.kernels.hazard import add_trees

        n_estimators = len(trees.roots)
        if n_estimators == self._n_trees:
            return
        if n_estimators < self._n_trees:
            self._margins[:], self._n_trees = self._memory.base, 0
        new = trees.only(messages.Trees).slice(self._n_trees)
        add_trees(self._margins, self._binned, self._last, new.roots, *_nodes_of(new), new.value)
        self._n_trees = n_estimators
        self._derive()

    def sum_by_bin(
        self, tree: messages.Trees, wanted: Integers, first: Sums, *, held_out: bool = False
    ) -> tuple[Sums, Sums, Sums]:
        """Return sums of slopes and curvatures, and numbers of patients, at the requested leaves, each (s, q).

        The sums are of the patients used for the current tree, or of those held out from all trees.
        """
        from multicentre.survival.kernels.hazard import sum_by_bin

        row = np.full(len(tree.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        last = np.where(self._held_out, self._last, -1).astype(np.int32) if held_out else self.seen
        return sum_by_bin(self._binned, last, self._slopes, self._curvatures, *_nodes_of(tree), row, first)

    def fewest_in_leaf(self, trees: messages.Trees) -> int:
        """Return the number of patients in the smallest non-empty leaf of any tree.

        Patients used for trees and those held out are counted separately, because their losses leave separately.
        """
        from multicentre.survival.kernels.hazard import count_leaves

        for number in range(self._n_counted, len(trees.roots)):
            nodes = _nodes_of(trees.only(messages.Trees).slice(number, number + 1))
            for chosen in (self._held_out, ~self._held_out):
                last = np.where(chosen, self._last, -1).astype(np.int32)
                counts = count_leaves(self._binned, last, *nodes, self._margins.shape[1])
                self._fewest = int(counts[counts > 0].min(initial=self._fewest))
        self._n_counted = len(trees.roots)
        return self._fewest

    @property
    def _held_out(self) -> NDArray[np.bool_]:
        if not self._memory.held_out:
            return np.zeros(len(self._last), dtype=np.bool_)
        return np.asarray(np.floor(self._memory.n_folds * self._draw(0)) + 1 == self._memory.held_out)

    def _derive(self) -> None:
        from multicentre.survival.kernels.hazard import derive_log_loss

        self._slopes, self._curvatures, losses = derive_log_loss(self._margins, self._last, self._happened)
        held_out = self._held_out
        drawn = self._draw(self._n_trees + 1) < self._memory.subsample
        self.seen = np.where(drawn & ~held_out, self._last, -1).astype(np.int32)
        counted = self._last >= 0
        groups = (self.seen >= 0, counted & held_out)
        self.losses = np.array([[losses[group].sum(), group.sum()] for group in groups], dtype=np.int64)

    def _draw(self, number: int) -> Floats:
        from multicentre.survival.kernels.pairs import draw_uniform

        if self._keys is None:
            return np.zeros(len(self._last))
        return draw_uniform(self._keys, self._memory.seed, number)


def _nodes_of(trees: messages.Trees) -> tuple[Integers, Floats, Integers, Integers]:
    """Return columns, cuts and children, in the order of the compiled functions."""
    return trees.column, trees.cut.astype(np.float64), trees.left, trees.right


def _keys(data: SurvivalData) -> NDArray[np.uint64]:
    from multicentre.survival.kernels.pairs import patient_keys

    return patient_keys(data.X, data.time, data.event, data.ids)


class HazardSite(TreePart, SurvivalPart):
    """The site part of FedHazardBoost."""

    method: ClassVar[str] = "fed-hazard-boost"
    # 2: children follow from the order of the splits, and requests contain the trees that a site lacks.
    revision: ClassVar[int] = 3
    remembers: ClassVar[type[Message]] = messages.Memory
    lengths: ClassVar[Lengths] = {
        "K": "intervals of time",
        "s": "nodes of the tree that grows",
        "q": "bins of all columns",
    }
    _rows: Rows | None = None

    @step(releases=messages.IntervalCounts, when="once", summed=True)
    def count_intervals(self, request: Nothing) -> messages.IntervalCounts:
        """Count patients by interval of an event and of the end of follow-up, for the initial hazard."""
        last, n_times = self._last, len(self.agreed.times)
        events = np.bincount(last[self.patients.happened], minlength=n_times).astype(np.float64)
        leaving = np.bincount(last[last >= 0], minlength=n_times).astype(np.float64)
        return messages.IntervalCounts(events, leaving, patients=self.behind(np.concatenate([events, leaving])))

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.InitialState) -> Acknowledgement:
        """Check and store the initial log odds and the fold that the trees of this pass do not use."""
        check_beginning(request, len(self.agreed.times))
        before = self.memory
        if len(before.base):
            check_pass(request, before)
        if not len(before.base) or request.held_out != before.held_out:
            self.state, self._rows, self._grown = self._without_trees(self.agreed, request), None, None
        return Acknowledgement()

    @step(releases=messages.Histograms, when="every round", summed=True)
    def sum_slopes(self, request: messages.Level) -> messages.Histograms:
        """Sum slopes and curvatures of the log-loss by node and bin, for the next splits of a tree."""
        n_bins = np.append(self.agreed.n_bins, len(self.agreed.times))
        check_level(request, n_bins)
        if not len(self.memory.base):
            raise ConfigurationError(
                "the site must have initial log odds before this step; got none",
                where="sum_slopes",
                hint="Start a new fit.",
            )
        growing, wanted = self.take_level(request, messages.Trees)
        # Unmasked, leaves that are not requested count too: their sums follow from those of a parent and of a sibling.
        leaves = wanted if self.masked else np.flatnonzero(growing.column < 0).astype(np.int32)
        check_cells(len(leaves) * int(n_bins.sum()))
        rows = self._caught_up()
        first = first_cells(self.agreed.n_bins, len(self.agreed.times))
        slopes, curvatures, cells = rows.sum_by_bin(growing, leaves, first)
        places = np.argmax(leaves == wanted[:, None], axis=1)
        if not self.masked:
            cells = np.append(cells, rows.sum_by_bin(growing, leaves, first, held_out=True)[2])
        behind = self._behind_level(rows, cells)
        return messages.Histograms(slopes[places], curvatures[places], rows.losses, patients=behind)

    def first_memory(self, agreed: Prepared) -> messages.Memory:
        """Return a state without initial log odds and without trees."""
        return self._without_trees(agreed, messages.InitialState(np.zeros(0), 0, 1.0, 0, 0))

    def _without_trees(self, agreed: Prepared, beginning: messages.InitialState) -> messages.Memory:
        """Return the state at the beginning of a pass."""
        start = {name: getattr(beginning, name) for name in messages.InitialState.declarations()}
        agreement = {name: getattr(agreed, name) for name in Prepared.declarations()}
        return messages.Memory(**agreement, **start, **messages.Trees.none().fields)

    @property
    def memory(self) -> messages.Memory:
        """State of the site."""
        agreed = self.agreed
        if not isinstance(agreed, messages.Memory):
            raise ConfigurationError(
                "the site must have an agreement before this step; got none", where=self.method, hint="Start a new fit."
            )
        return agreed

    @property
    def _last(self) -> Integers:
        """Last interval in which each patient counts, shape (n,)."""
        patients = self.patients
        return last_intervals(patients.bins, patients.happened, self.data.time, self.agreed.times)

    def _behind_level(self, rows: Rows, cells: Sums) -> int:
        """Return the number of patients behind the sums of a level: those of the smallest cell.

        Leaves of finished trees count too, because the patients of a leaf share its increment of the margins. So do the
        cells of held-out patients, because they are the difference between the sums of two passes.
        """
        if self.masked:
            return self.behind()
        fewest = np.array([rows.fewest_in_leaf(self.memory)])
        return min(self.behind(each) for each in (cells, rows.losses[:, 1], fewest))

    def finished_trees(self) -> messages.Memory:
        """Return the site's state, which contains the trees of the pass."""
        return self.memory

    def add_trees(self, new: messages.Trees) -> None:
        """Add trees to the site's state."""
        memory = self.memory
        self.state = replace(memory, **memory.only(messages.Trees).followed_by(new).fields)

    def _caught_up(self) -> Rows:
        """Return the patients' rows under the trees that the coordinator has finished."""
        if self._rows is None:
            self._rows = Rows(self.patients, self.data, self._last, self.memory)
            self._patients = None  # frees the unbinned columns, which Rows does not need
        self._rows.catch_up(self.memory)
        return self._rows


def check_cells(n_cells: int) -> None:
    """Raise MessageError for sums with too many cells."""
    if n_cells > MAX_CELLS:
        hint = "Lower max_depth or max_bins."
        raise MessageError(f"sums must have at most {MAX_CELLS} cells; got {n_cells}", where="Level.wanted", hint=hint)
