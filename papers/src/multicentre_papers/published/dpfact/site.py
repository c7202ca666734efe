"""Site part of DPFact as published: passes over the entries above zero.

Steps inherited from other modules of ``multicentre``:

- ``describe``, ``name_codes``, ``count_codes`` and ``sum_sizes``, from phenotyping/agreement.py;
- ``agree``, ``sum_errors`` and ``profile``, from phenotyping/dpfact/site.py.

Releases are declared in published/dpfact/messages.py and next to the inherited steps. Each site answers separately to
``describe``, ``name_codes`` and ``profile``; all other releases are terms of sums over sites.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.steps import Acknowledgement, Step, step
from multicentre.phenotyping.dpfact.private_site import require_fitting
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.kernels.hals import predict_entries
from multicentre_papers.published.dpfact.maths import SolverState, add_published_noise, descend
from multicentre_papers.published.dpfact.messages import BeginDrawn, LocalFactors, PassEntries

Floats = NDArray[np.float64]
# Steps of the published algorithm. The steps of DPFact's own solvers are left out.
PUBLISHED_STEPS = frozenset(
    {"describe", "name_codes", "count_codes", "agree", "sum_sizes", "begin_drawn", "pass_entries", "sum_errors"}
) | {"profile"}


class AsPublishedSite(DPFactSite):
    """The site part of DPFact as published."""

    method: ClassVar[str] = "dpfact-as-published"
    revision: ClassVar[int] = 2

    @classmethod
    def steps(cls) -> dict[str, Step[Any, Any, Any]]:
        """Return the steps of the published algorithm by name."""
        return {name: each for name, each in super().steps().items() if name in PUBLISHED_STEPS}

    @step(releases=Acknowledgement, when="once")
    def begin_drawn(self, request: BeginDrawn) -> Acknowledgement:
        """Store the factors to start from, and draw the memberships."""
        require_fitting(request.factors, self.memory.codes)
        # The stream depends on the site's data, so that no coordinator can compute the draws.
        generator = self.generator(request.seed, int(self.data.digest()[:16], 16))
        memberships = request.largest * generator.random(
            (len(self.data), next(iter(request.factors.values())).shape[1])
        )
        self.state = dataclasses.replace(
            self.memory, seed=request.seed, factors=request.factors, memberships=memberships
        )
        return Acknowledgement()

    @step(releases=LocalFactors, when="every round", summed=True)
    def pass_entries(self, request: PassEntries) -> LocalFactors:
        """Run the passes over the entries above zero; return the site's factors."""
        memory = self.memory
        how = SolverState(
            request.n_passes, request.step, request.elastic_penalty, request.shrinkage, request.nonnegative
        )
        generator = self.generator(memory.seed, request.round_number)
        targets = list(request.factors.values())
        behind = [len(self.data)]

        def count(used: Floats, near: Sequence[Floats]) -> None:
            behind.append(self._behind_descent(used, near))

        start = list(memory.factors.values())
        memberships, local = descend(self.tensor, memory.memberships, start, targets, how, generator, count=count)
        factors = dict(zip(memory.codes, add_published_noise(local, request.noise_sd), strict=True))
        self._remember(factors, memberships)
        return LocalFactors(factors, sites=1, patients=min(*behind, self._behind_descent(memberships, local)))

    def _behind_descent(self, memberships: Floats, factors: Sequence[Floats]) -> int:
        """Return the fewest patients that move an entry of a factor in a descent over the entries above zero."""
        if self.masked:
            return len(self.data)
        residuals = self.tensor.counts - predict_entries(self.tensor, [memberships, *factors])
        modes = range(1, self.tensor.n_modes)
        return self.behind_cells(memberships, factors, modes, values=residuals, gram=False)
