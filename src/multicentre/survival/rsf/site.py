"""Site part of FedRSF: the steps that a coordinator can request.

A site counts its drawn patients by node, bin and time. It stores only the agreement: a request contains the current
trees, and the draws of patients follow from their records. Unmasked, counts by node, bin and time rest on single
patients, so they leave only under a policy without a minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Lengths
from multicentre.federation.steps import step
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.rsf import messages as sent
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
    lengths: ClassVar[Lengths] = {
        "T": "trees",
        "f": "counts of each tree or leaf: by time of events, by end of follow-up, patients, patients with an event",
        "w": "words, each of several counts",
        "s": "leaves",
    }
    _keys: NDArray[np.uint64] | None = None

    @step(releases=sent.Samples, when="once", summed=True)
    def count_samples(self, ask: sent.Sampling) -> sent.Samples:
        """Count each tree's drawn patients by group of times, with and without event."""
        check_sampling(ask, len(self.agreed.times))
        bins = self._groups(ask.n_groups)
        counts = np.stack(
            [self._count(self._drawn(ask.seed, tree), bins, ask.n_groups) for tree in range(ask.n_estimators)]
        )
        return sent.Samples(counts, patients=self.behind(counts))

    @step(releases=sent.Histograms, when="every round", summed=True)
    def count_splits(self, ask: sent.Level) -> sent.Histograms:
        """Count drawn patients by leaf, bin of some columns, and time, for the log-rank statistics of all splits."""
        from multicentre.survival.kernels.logrank_sums import count_patients, n_words

        max_bins = self.agreed.n_bins
        check_level(ask, max_bins, len(self.agreed.times))
        width = np.array([n_words(ask.n_groups, bits) for bits in ask.bits.tolist()], dtype=np.int64)
        start = first_words(ask.tried, max_bins, width)
        check_words(int(start[-1]))
        words = np.zeros(int(start[-1]), dtype=np.int64)
        patients, bins = self.patients, self._groups(ask.n_groups)
        detail = (ask.tried, max_bins, start, ask.bits, ask.n_groups)
        for drawn, nodes in self._trees(ask):
            count_patients(words, patients.binned, bins, patients.happened, drawn, *nodes, *detail)
        return sent.Histograms(words, patients=self.behind(ONE))

    @step(releases=sent.Leaves, when="at the end", summed=True)
    def count_leaves(self, ask: sent.Standing) -> sent.Leaves:
        """Count drawn patients by leaf and time of the grid, for the leaves' curves."""
        from multicentre.survival.kernels.logrank_sums import count_leaves

        n_fields = 2 * len(self.agreed.times) + 1
        check_standing(ask, self.agreed.n_bins)
        check_words(len(ask.wanted) * n_fields)
        counts = np.zeros((len(ask.wanted), n_fields), dtype=np.int64)
        patients = self.patients
        for drawn, nodes in self._trees(ask):
            count_leaves(counts, patients.binned, patients.bins, patients.happened, drawn, *nodes)
        return sent.Leaves(counts, patients=self.behind(ONE))

    def _trees(self, ask: sent.Standing) -> Iterator[tuple[NDArray[np.uint8], Nodes]]:
        """Yield each tree's sample, and its nodes with the rows of the requested leaves."""
        row = np.full(len(ask.column), -1, dtype=np.int32)
        row[ask.wanted] = np.arange(len(ask.wanted))
        ends = np.append(ask.root[1:], len(ask.column)).tolist()
        for tree, first, stop in zip(ask.tree.tolist(), ask.root.tolist(), ends, strict=True):
            nodes = slice(first, stop)
            yield (
                self._drawn(ask.seed, tree),
                (
                    ask.column[nodes],
                    ask.cut[nodes],
                    ask.left[nodes],
                    ask.right[nodes],
                    row[nodes],
                ),
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
