"""Site part of class boosting: the steps that a coordinator can request.

Steps inherited from data/missing/values.py of ``multicentre``: ``count_gaps``, ``handle_gaps``, ``add_indicators`` and
``report_gaps``.

A site's tree leaves as arrays, with thresholds on public edges and leaves of at least 15 patients or the policy's
minimum. The errors of all sites' trees are terms of sums over sites, with the same value masked and unmasked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.missing.values import Missing, TabularPart
from multicentre.data.records import fewest_different
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.survival.agreement.messages import About, Squares
from multicentre.survival.agreement.sketch import column_edges, public_values, to_column_bins
from multicentre.survival.surv_boost import messages as limits
from multicentre.survival.surv_boost.maths import Rule, decide, effective_number, normalised, reweigh, share_out
from multicentre_papers.baselines.adaboost_f import messages
from multicentre_papers.baselines.adaboost_f.trees import ClassTrees, grow_tree, plurality

Floats = NDArray[np.float64]
# Bounds memory: the matrix of errors has one 8-byte float per patient and tree, 32 KiB per patient at 4096.
MAX_TREES = 4096
TREES = ("roots", "column", "threshold", "left", "right", "label")


class ClassSite(TabularPart):
    """Site part of class boosting."""

    method: ClassVar[str] = "ada-boost-f"
    revision: ClassVar[int] = 2
    handles: ClassVar[tuple[Missing, ...]] = ("mean", "complete", "indicator")
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = messages.Memory
    lengths: ClassVar[Lengths] = {
        "T": "trees",
        "m": "nodes of all trees",
        "q": "hypotheses (trees or committees)",
    }
    data: TableData
    state: messages.Memory | None = None
    _wrong: Floats | None = None
    _filled: Floats | None = None
    _codes: tuple[Floats, Floats] | None = None

    @step(releases=messages.Described, when="once")
    def describe(self, request: Nothing) -> messages.Described:
        """Return the names of the columns and classes, so that errors can name a site that differs."""
        if self.data.outcome != "class":
            raise DataError("the outcome must be a class; got a number", where=self.site, hint="Declare the classes.")
        data = self.data
        return messages.Described(data.columns, data.classes, levels=data.levels, patients=len(data))

    @step(releases=messages.Sizes, when="once", summed=True)
    def sum_sizes(self, request: Nothing) -> messages.Sizes:
        """Count patients and sum the columns, for their means."""
        X = self.data.X
        present = ~np.isnan(X)
        total = np.where(present, X, 0.0).sum(axis=0)
        return messages.Sizes(float(len(X)), present.sum(axis=0).astype(float), total, patients=self._behind_columns)

    @step(releases=Squares, when="once", summed=True)
    def sum_squares(self, request: About) -> Squares:
        """Sum the squared deviations from the means, for the standard deviations."""
        return Squares(np.nansum((self.data.X - request.centre) ** 2, axis=0), patients=self._behind_columns)

    @step(releases=Acknowledgement, when="once")
    def agree(self, request: messages.Prepared) -> Acknowledgement:
        """Store the agreement and give all patients the same weight; nothing leaves the site."""
        same = (request.columns, request.levels) == (self.data.columns, self.data.levels)
        fits = same and request.classes[: len(self.data.classes)] == self.data.classes
        if not fits or not (request.spread > 0).all():
            raise SchemaMismatch(
                "columns, levels and classes must be those of the agreement; got different ones",
                where="agree",
                hint="Use the same names at every site.",
            )
        agreed = {name: getattr(request, name) for name in messages.Prepared.declarations()}
        if self.state is not None and not all(np.array_equal(getattr(self.state, n), agreed[n]) for n in agreed):
            raise ConfigurationError(
                "the agreement must be the one that the site has stored; got a different one",
                where="agree",
                hint="Start a new fit.",
            )
        trees = {name: getattr(ClassTrees.none(), name) for name in TREES}
        equal = np.full(len(self.data), -np.log(request.n_patients))
        self.state = messages.Memory(**agreed, log_weights=equal, **trees, committee=False, stopped=False)
        self._wrong = None
        return Acknowledgement()

    @step(releases=ClassTrees, when="every round")
    def fit_tree(self, request: messages.FitTree) -> ClassTrees:
        """Grow a tree on the site's weighted patients; the tree itself is released, not a sum."""
        if self.memory.stopped:
            return ClassTrees.none()
        codes, edges = self._binned()
        weights = normalised(self.memory.log_weights)
        least = limits.fewest_in_leaf(request.min_samples_leaf, self.least_behind)
        data_seed = int(self.data.digest()[:16], 16)
        seed = int(self.generator(request.seed, request.round, data_seed).integers(2**31))
        depth = max(1, request.max_depth)
        tree = grow_tree(codes, self.data.y, weights, edges, max_depth=depth, min_samples_leaf=least, seed=seed)
        few = len(self.data) < limits.fewest_in_leaf(1, self.least_behind)
        if few or (request.alone and not self._boost_alone(tree, request)):
            return ClassTrees.none()
        return tree

    @step(releases=messages.Errors, when="every round", summed=True)
    def judge(self, request: messages.Hypotheses) -> messages.Errors:
        """Check and store the trees of all sites, and sum the weights of the patients that each misclassifies."""
        if request.n_estimators or len(request.column):
            self._receive(request)
        elif not len(self.memory.roots):
            raise ConfigurationError(
                "the first request must contain trees; got none", where="judge", hint="Start a new fit."
            )
        weights = np.exp(self.memory.log_weights - request.log_total)
        right = 1.0 - self.wrong
        cells = [weights, *(weights[:, None] * self.wrong).T, *(weights[:, None] * right).T]
        return messages.Errors(weights @ self.wrong, float(weights.sum()), patients=min(map(self._behind, cells)))

    @step(releases=messages.Total, when="every round", summed=True)
    def reweigh(self, request: messages.Chosen) -> messages.Total:
        """Reweigh the patients by the selected hypothesis."""
        if not (0 <= request.index < self.wrong.shape[1] and 0 <= request.vote <= limits.MAX_VOTE):
            raise ConfigurationError(
                f"the hypothesis must be one of the {self.wrong.shape[1]} that were sent, with a vote in "
                f"[0, {limits.MAX_VOTE:g}]; got index {request.index} and vote {request.vote:g}",
                where="reweigh",
                hint="Start a new fit.",
            )
        log_weights = reweigh(self.memory.log_weights - request.log_total, self.wrong[:, request.index], request.vote)
        self._keep(log_weights=log_weights)
        weights = np.exp(log_weights)
        return messages.Total(float(weights.sum()), patients=self._behind(weights))

    @property
    def memory(self) -> messages.Memory:
        """State of the site.

        Raises
        ------
        ConfigurationError
            There is no agreement.
        """
        if self.state is None:
            raise ConfigurationError(
                "a fit must start with the agreement; got another step", where=self.method, hint="Start a new fit."
            )
        return self.state

    @property
    def wrong(self) -> Floats:
        """1 where a received hypothesis misclassifies a patient, else 0; shape (n, q)."""
        if self._wrong is None:
            self._wrong = self._judge(ClassTrees(*(getattr(self.memory, name) for name in TREES)))
        return self._wrong

    def _receive(self, request: messages.Hypotheses) -> None:
        memory = self.memory
        request.valid(len(memory.columns), len(memory.classes))
        if request.n_estimators > MAX_TREES:
            raise ConfigurationError(
                f"there must be at most {MAX_TREES} trees; got {request.n_estimators}", where="judge"
            )
        self._keep(**{name: getattr(request, name) for name in TREES}, committee=request.committee)
        self._wrong = None

    def _judge(self, trees: ClassTrees) -> Floats:
        labels = trees.labels(self._rows())
        if self.memory.committee:
            labels = plurality(labels, len(self.memory.classes))[:, None].astype(np.int32)
        return np.asarray(labels != self.data.y[:, None], dtype=np.float64)

    def _boost_alone(self, tree: ClassTrees, request: messages.FitTree) -> bool:
        """Reweigh by the site's tree without other sites (SAMME) and return True if the tree is accepted."""
        memory = self.memory
        weights, wrong = normalised(memory.log_weights), self._judge(tree)[:, 0]
        rule = Rule.of_classes(len(memory.classes), limits.checked_rate(request.rate))
        total, is_first = float(weights.sum()), request.round == 1
        verdict = decide(np.array([weights @ wrong]), np.ones(1), total, rule, is_first=is_first)
        log_weights = share_out(reweigh(memory.log_weights, wrong, verdict.vote), memory.n_patients)
        self._keep(log_weights=log_weights, stopped=bool(verdict.stop))
        return verdict.is_selected

    def _binned(self) -> tuple[Floats, Floats]:
        """Return the bins of the columns and their public edges."""
        if self._codes is None:
            edges = column_edges(self.memory.centre, self.memory.spread)
            rows = public_values(self._rows()) if self.least_behind > 1 else self._rows()
            bins = [to_column_bins(values, edges[column]) for column, values in enumerate(rows.T)]
            self._codes = np.column_stack(bins).astype(np.float64), edges
        return self._codes

    def _rows(self) -> Floats:
        """Return the columns with missing entries filled."""
        if self._filled is None:
            self._filled = np.where(np.isnan(self.data.X), self.memory.centre, self.data.X)
        return self._filled

    @property
    def _behind_columns(self) -> int:
        """Number of patients behind sums of the columns; unmasked, the fewest who stand out in a column."""
        return len(self.data) if self.masked else fewest_different(self.data.X)

    def _behind(self, weights: Floats) -> int:
        """Return the effective number of patients of a weighted sum; all under a mask, and without any weight."""
        return len(self.data) if self.masked or not weights.any() else int(effective_number(weights) + 1e-6)

    def _keep(self, **changes: Any) -> None:
        self.state = replace(self.memory, **changes)
