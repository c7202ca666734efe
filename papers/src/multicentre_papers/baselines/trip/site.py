"""Site part of TRIP: the steps that a coordinator can request.

Steps inherited from phenotyping/agreement.py of ``multicentre``: ``describe``, ``name_codes``, ``count_codes`` and
``sum_sizes``. The release of ``sum_errors`` is declared in phenotyping/fitted/fit_sums.py.

A site keeps its patients' counts and their memberships in phenotypes. Its factors and multipliers leave as terms of
sums over sites; :mod:`~multicentre_papers.baselines.trip.messages` declares them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import Acknowledgement, step
from multicentre.phenotyping.agreement import TensorPart, prepare_tensor
from multicentre.phenotyping.fitted.fit_sums import FitSums, sum_fit
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships
from multicentre_papers.baselines.trip import messages
from multicentre_papers.baselines.trip.maths import Local, Settings, update_site

Floats = NDArray[np.float64]


class TRIPSite(TensorPart):
    """Site part of TRIP."""

    method: ClassVar[str] = "trip"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = messages.SiteMemory
    lengths: ClassVar[Lengths] = {"r": Length("phenotypes", "rank")}

    @step(releases=Acknowledgement, when="once")
    def agree(self, request: messages.Prepared) -> Acknowledgement:
        """Store the agreed codes and the upper limit of the counts."""
        empty = {mode: np.zeros((len(names), 0)) for mode, names in request.codes.items()}
        memory = messages.SiteMemory(
            request.codes,
            cap=request.cap,
            distinct=0.0,
            nonnegative=True,
            n_sweeps=0,
            factors=empty,
            multipliers=empty,
            memberships=np.zeros((len(self.data), 0)),
        )
        return prepare_tensor(self, memory)

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Begin) -> Acknowledgement:
        """Store the initial factors and the fixed settings; multipliers start at 0."""
        rank = next(iter(request.factors.values())).shape[1]
        self.state = dataclasses.replace(
            self.memory,
            distinct=request.distinct,
            nonnegative=request.nonnegative,
            n_sweeps=request.n_sweeps,
            factors=request.factors,
            multipliers={mode: np.zeros_like(factor) for mode, factor in request.factors.items()},
            memberships=np.ones((len(self.data), rank)),
        )
        return Acknowledgement()

    @step(releases=messages.LocalTerms, when="every round", summed=True)
    def fit_near_consensus(self, request: messages.Draw) -> messages.LocalTerms:
        """Fit the site's memberships, factors and multipliers near the consensus."""
        memory = self.memory
        solution = update_site(
            self.tensor,
            Local(memory.memberships, list(memory.factors.values()), list(memory.multipliers.values())),
            [request.factors[mode] for mode in memory.codes],
            request.penalty,
            Settings(memory.distinct, memory.nonnegative, memory.n_sweeps),
        )
        factors = dict(zip(memory.codes, solution.factors, strict=True))
        multipliers = dict(zip(memory.codes, solution.multipliers, strict=True))
        self.state = dataclasses.replace(
            memory, factors=factors, multipliers=multipliers, memberships=solution.memberships
        )
        behind = self._behind_factors(solution.memberships, list(memory.factors.values()), solution.factors)
        return messages.LocalTerms(factors, multipliers, sites=1, patients=behind)

    @step(releases=FitSums, when="at the end", summed=True)
    def sum_errors(self, request: messages.Final) -> FitSums:
        """Fit the memberships to the consensus, sum its errors and count the patients of every phenotype."""
        memory = self.memory
        factors = [request.factors[mode] for mode in memory.codes]
        start = np.ones((len(self.data), factors[0].shape[1]))
        memberships = fit_memberships(
            self.tensor, factors, start, n_sweeps=request.n_sweeps, nonnegative=memory.nonnegative
        )
        return sum_fit(self, memberships, factors, request.threshold)

    def _behind_factors(self, memberships: Floats, before: Sequence[Floats], after: Sequence[Floats]) -> int:
        """Return the smallest number of patients behind a cell of the products that each factor was fitted to."""
        # Each mode is fitted to the new factors of the preceding modes and the old factors of the following ones.
        fixed = [[*after[:place], *before[place:]] for place in range(len(before))]
        return min(self.behind_cells(memberships, each, [place]) for place, each in enumerate(fixed, start=1))

    @property
    def memory(self) -> messages.SiteMemory:
        """State of the site: the agreed codes and the local part of the solution."""
        memory = super().memory
        assert isinstance(memory, messages.SiteMemory)
        return memory

    @property
    def tensor(self) -> SparseTensor:
        """Counts of the site over the agreed codes, limited by the agreed cap."""
        if self._tensor is None:
            whole, cap = super().tensor, self.memory.cap
            counts = np.minimum(whole.counts, float(cap)) if cap else whole.counts
            self._tensor = SparseTensor(whole.coordinates, counts, whole.shape)
        return self._tensor
