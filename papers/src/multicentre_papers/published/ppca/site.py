"""Site part of Fed-mv-PPCA as published: local fits under the global law.

Steps inherited from other modules of ``multicentre``:

- ``describe``, ``column_orders``, ``column_totals`` and ``column_squares``, from multiview/agreement.py;
- ``prepare``, ``check_enough_rows``, ``sum_first_moments``, ``multiply_moments``, ``draw_waic`` and ``evaluate``, from
  multiview/ppca/site.py.

Releases are declared in multiview/ppca/messages.py. All are terms of sums over sites, except the answers of
``describe`` and ``check_enough_rows``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from multicentre.core.steps import Step, step
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths.model import Parameters
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre_papers.published.ppca.draws import draw_parameters
from multicentre_papers.published.ppca.em import fit_local, random_start
from multicentre_papers.published.ppca.entries import fit_local_entries
from multicentre_papers.published.ppca.messages import LocalRequest

# Steps of the published algorithm. The other steps of Fed-mv-PPCA serve its own rounds and its private fit.
PUBLISHED_STEPS = frozenset(
    {
        *("describe", "column_orders", "column_totals", "column_squares", "prepare", "sum_first_moments"),
        *("multiply_moments", "fit_local", "check_enough_rows", "draw_waic", "evaluate"),
    }
)


class AsPublishedSite(MvPPCASite):
    """Site part of Fed-mv-PPCA as published."""

    method: ClassVar[str] = "fed-mv-ppca-as-published"
    revision: ClassVar[int] = 2

    @classmethod
    def steps(cls) -> dict[str, Step[Any, Any, Any]]:
        """Return the steps of the published algorithm by name."""
        return {name: each for name, each in super().steps().items() if name in PUBLISHED_STEPS}

    @step(releases=messages.GlobalSums, when="every round", summed=True)
    def fit_local(self, request: LocalRequest) -> messages.GlobalSums:
        """Fit the site's parameters under the global law and return the terms of the sums over sites (Algorithm 1)."""
        self._require_local_fit(isolated=True)
        prior = Prior(**messages.fields_of(request, Prior))
        start = self._draw_start(request, prior) if request.faithful else prior.centre(self.layout)
        local = self._fit(start, None if request.first else prior, request.n_iterations)
        return self._contribution(local, prior)

    def _fit(self, start: Parameters, prior: Prior | None, n_iterations: int) -> LocalFit:
        rows = self.local_rows
        if rows.entries:
            return fit_local_entries(
                rows.values, rows.layout, start, prior, n_iterations=n_iterations, noise=rows.noise
            )
        return fit_local(
            rows.patterns, rows.layout, start, prior, n_iterations=n_iterations, noise=rows.noise, accelerate=False
        )

    def _draw_start(self, request: LocalRequest, prior: Prior) -> Parameters:
        generator = self.generator(request.seed, request.round_number)
        if not request.first:
            return draw_parameters(prior, self.layout, generator)
        noise = prior.centre(self.layout).noise[self.layout.starts]
        drawn = random_start(self.layout, self.memory.n_components, noise, generator)
        return Parameters(drawn.loadings, prior.mean, drawn.noise)
