"""Site part of FedRSF: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

A site counts its drawn patients by node, bin and time. It stores only the agreement: a request contains the current
trees, and the draws of patients follow from their records. Unmasked, counts by node, bin and time rest on single
patients, so they leave only under a policy without a minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths
from multicentre.core.steps import step
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.rsf import messages
from multicentre.survival.rsf.maths import first_words, group_times
from multicentre.survival.rsf.messages import check_level, check_sampling, check_standing, check_words

Counts = NDArray[np.int64]
Integers = NDArray[np.int32]
# Cells by leaf, bin and time almost always hold single patients, so the smallest cell is not computed.
ONE = np.ones(1)
Nodes = tuple[Integers, Integers, Integers, Integers, Integers]


class ForestSite(SurvivalPart):
    """Site part of FedRSF."""

    method: ClassVar[str] = "fed-rsf"
    # 2: children follow from the order of the splits.
    revision: ClassVar[int] = 3
    lengths: ClassVar[Lengths] = {
        "T": "trees",
        "f": "counts of each tree or leaf: by time of events, by end of follow-up, patients, patients with an event",
        "w": "words, each of several counts",
        "s": "leaves",
    }
    _keys: NDArray[np.uint64] | None = None

    @step(releases=messages.Samples, when="once", summed=True)
    def count_samples(self, request: messages.Sampling) -> messages.Samples:
        """Count each tree's drawn patients by group of times, with and without event."""
        check_sampling(request, len(self.agreed.times))
        bins = self._groups(request.n_groups)
        counts = np.stack(
            [
                self._count(self._drawn(request.seed, tree), bins, request.n_groups)
                for tree in range(request.n_estimators)
            ]
        )
        return messages.Samples(counts, patients=self.behind(counts))

    @step(releases=messages.Histograms, when="every round", summed=True)
    def count_splits(self, request: messages.Level) -> messages.Histograms:
        """Count drawn patients by leaf, bin of some columns, and time, for the log-rank statistics of all splits."""
        from multicentre.survival.kernels.logrank_sums import count_patients, n_words

        max_bins = self.agreed.n_bins
        check_level(request, max_bins, len(self.agreed.times))
        width = np.array([n_words(request.n_groups, bits) for bits in request.bits.tolist()], dtype=np.int64)
        start = first_words(request.tried, max_bins, width)
        check_words(int(start[-1]))
        words = np.zeros(int(start[-1]), dtype=np.int64)
        patients, bins = self.patients, self._groups(request.n_groups)
        detail = (request.tried, max_bins, start, request.bits, request.n_groups)
        for drawn, nodes in self._trees(request):
            count_patients(words, patients.binned, bins, patients.happened, drawn, *nodes, *detail)
        return messages.Histograms(words, patients=self.behind(ONE))

    @step(releases=messages.Leaves, when="at the end", summed=True)
    def count_leaves(self, request: messages.ForestState) -> messages.Leaves:
        """Count drawn patients by leaf and time of the grid, for the leaves' curves."""
        from multicentre.survival.kernels.logrank_sums import count_leaves

        n_fields = 2 * len(self.agreed.times) + 1
        check_standing(request, self.agreed.n_bins)
        check_words(len(request.wanted) * n_fields)
        counts = np.zeros((len(request.wanted), n_fields), dtype=np.int64)
        patients = self.patients
        for drawn, nodes in self._trees(request):
            count_leaves(counts, patients.binned, patients.bins, patients.happened, drawn, *nodes)
        return messages.Leaves(counts, patients=self.behind(ONE))

    def _trees(self, request: messages.ForestState) -> Iterator[tuple[NDArray[np.uint8], Nodes]]:
        """Yield each tree's sample, and its nodes with the rows of the requested leaves."""
        row = np.full(len(request.column), -1, dtype=np.int32)
        row[request.wanted] = np.arange(len(request.wanted))
        ends = np.append(request.roots[1:], len(request.column)).tolist()
        for tree, first, stop in zip(request.tree.tolist(), request.roots.tolist(), ends, strict=True):
            nodes = slice(first, stop)
            left = request.left[nodes] - np.int32(first)
            children = left, left + np.int32(1)
            yield (
                self._drawn(request.seed, tree),
                (request.column[nodes], request.cut[nodes], *children, row[nodes]),
            )

    def _groups(self, n_groups: int) -> Counts:
        return group_times(self.patients.bins, len(self.agreed.times), n_groups)

    def _count(self, drawn: NDArray[np.uint8], bins: Counts, n_groups: int) -> Counts:
        is_drawn, weights, happened = drawn > 0, drawn.astype(np.float64), self.patients.happened
        leaving = np.bincount(bins, weights=weights, minlength=n_groups + 1)
        events = np.bincount(bins[happened], weights=weights[happened], minlength=n_groups)[:n_groups]
        each = [is_drawn.sum(), (is_drawn & happened).sum()]
        return np.concatenate([events, leaving, each]).astype(np.int64)

    def _drawn(self, seed: int, tree: int) -> NDArray[np.uint8]:
        from multicentre.survival.kernels.pairs import draw_poisson, patient_keys

        if self._keys is None:
            self._keys = patient_keys(self.data.X, self.data.time, self.data.event, self.data.ids)
        return draw_poisson(self._keys, seed, tree)
