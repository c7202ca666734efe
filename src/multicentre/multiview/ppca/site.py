"""Site part of Fed-mv-PPCA: the requests that a site accepts, and its responses.

A site brings its rows to the agreed units and reduces them to counts, means and second moments. The site's parameters
and case mix stay here; the releases are declared in :mod:`~multicentre.multiview.ppca.messages`, as terms of sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from multicentre.data.blocks import place
from multicentre.federation.errors import ConfigurationError, DataError, IntegrityError
from multicentre.federation.messages import Length, Lengths, Message, Nothing
from multicentre.federation.steps import Acknowledgement, step
from multicentre.multiview.agreement import LEAST_SPREAD, MultiViewPart, Stacking, check_columns
from multicentre.multiview.ppca import messages as sent
from multicentre.multiview.ppca.maths import selection
from multicentre.multiview.ppca.maths.describe import add_up, describe_rows
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters, absorb_axes, change_axes
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior, PriorUnits, site_contribution
from multicentre.multiview.ppca.maths.private import Clipping, mean_by_person, sum_outer_products
from multicentre.multiview.ppca.maths.problem import Noise
from multicentre.multiview.ppca.maths.rows import SiteRows


class MvPPCASite(MultiViewPart):
    """The site part of Fed-mv-PPCA."""

    method: ClassVar[str] = "fed-mv-ppca"
    clips_persons: ClassVar[bool] = True
    remembers: ClassVar[type[Message]] = sent.SiteMemory
    lengths: ClassVar[Lengths] = {
        "q": Length("latent dimensions", "n_components"),
        "e": "latent dimensions, and one for the mean",
        "g": "views, or columns where the model has a noise of each column or entries are missing",
        "p": "products of two columns of a row, or random directions",
    }
    state: sent.SiteMemory | None = None
    _rows: SiteRows | None = None

    @step(releases=Acknowledgement, when="once")
    def prepare(self, ask: sent.Standards) -> Acknowledgement:
        """Set the agreed units; the case mix of the site starts as the standard one."""
        check_columns(self.data, ask.columns)
        require_normal_scale(ask.spread, "spread")
        if ask.complete:
            self._require_complete(ask)
        law = LatentLaw.standard(ask.n_components)
        self.state = sent.SiteMemory(**sent.fields_of(ask), latent_mean=law.mean, latent_covariance=law.covariance)
        self._rows = None
        return Acknowledgement()

    @step(releases=sent.Enough, when="once")
    def check_enough_rows(self, ask: Nothing) -> sent.Enough:
        """Check that the site has enough patients for draws of its parameters, for the WAIC."""
        rows = self.local_rows
        self._require_local_fit(isolated=True)
        selection.require_enough_rows(rows.values[:, rows.observed_features], self.memory.n_components)
        return sent.Enough(enough=True, patients=self.fewest)

    @step(releases=sent.FirstMoments, when="once", summed=True)
    def sum_first_moments(self, ask: Nothing) -> sent.FirstMoments:
        """Count patients by pair of views; sum the columns and their squares about the site's mean."""
        sums = self.local_rows.first_moments()
        return sent.FirstMoments(sums.pairs, sums.total, sums.variances, patients=self.behind)

    @step(releases=sent.Products, when="once", summed=True)
    def multiply_moments(self, ask: sent.Directions) -> sent.Products:
        """Multiply second moments with directions (above 400 columns: four times), for the start."""
        return sent.Products(self.local_rows.multiply_moments(ask.directions, ask.pairs), patients=self.behind)

    @step(releases=sent.OuterProducts, when="once", summed=True)
    def sum_outer_products(self, ask: sent.Clip) -> sent.OuterProducts:
        """Shorten each row to a common length and sum products of columns, for a differentially private fit only.

        A patient with several records counts with the mean of the shortened rows.
        """
        require_normal_scale(ask.radius, "radius")
        if not self.memory.complete:
            raise ConfigurationError(
                "the site must be prepared for a private fit; got a fit without epsilon", where="sum_outer_products"
            )
        clipping = Clipping(ask.radius, self.layout.n_features)
        blocks = self.standard_blocks()
        if self.persons is not None:
            blocks = iter([mean_by_person(blocks, self.persons, ask.radius)])
        return sent.OuterProducts(sum_outer_products(blocks, clipping), patients=self.fewest)

    @step(releases=sent.SharedSums, when="every round", summed=True)
    def fit_shared(self, ask: sent.Shared) -> sent.SharedSums:
        """Update the site's case mix; write the sums for the parameters that all sites share."""
        law = change_axes(self.law, ask.gauge_mean, ask.gauge_axes)
        sums, law = self.local_rows.answer(Parameters(ask.loadings, ask.mean, ask.noise), law)
        self._store(law)
        return sent.SharedSums(**sent.fields_of(sums), patients=self.behind)

    @step(releases=sent.GlobalSums, when="every round", summed=True)
    def fit_around(self, ask: sent.AroundAsk) -> sent.GlobalSums:
        """Fit the site's own parameters and case mix around the global law; return the differences."""
        self._require_local_fit(isolated=False)
        prior = _prior(ask)
        law = change_axes(self.law, ask.gauge_mean, ask.gauge_axes)
        start = self._local_parameters(prior, ask.gauge_mean, ask.gauge_axes)
        local, law, sums = self.local_rows.fit_around(start, law, prior, ask.n_iterations)
        self._store(law, local.parameters)
        return self._contribution(local, prior, sums)

    @step(releases=sent.WaicParts, when="on request", summed=True)
    def draw_waic(self, ask: sent.Draws) -> sent.WaicParts:
        """Draw the site's parameters given its rows, and sum the log predictive densities of the rows."""
        observed = self.local_rows.observed_features
        parts = selection.waic_parts(
            self.local_rows.values[:, observed],
            self.layout.keep(self.data.views),
            Parameters(ask.loadings, ask.mean, ask.noise).restrict(observed),
            self.generator(ask.seed),
            noise=self.noise,
            n_draws=ask.n_draws,
            n_burn=ask.n_burn,
        )
        return sent.WaicParts(parts.lppd, parts.p_waic, float(parts.n_rows), patients=self.behind)

    @step(releases=sent.Evaluation, when="at the end", summed=True)
    def evaluate(self, ask: sent.Law) -> sent.Evaluation:
        """Sum log-likelihood, errors and variance explained over the site's rows."""
        law = Parameters(ask.loadings, ask.mean, ask.noise)
        sums = add_up(
            describe_rows(X, law, self.layout, self.memory.spread / ask.deviation) for X in self.standard_blocks()
        )
        return sent.Evaluation(**sent.fields_of(sums), patients=self.behind)

    def crowds(self) -> Floats:
        """Return the number of patients with an entry, by column, and with both views, by pair of views."""
        holds = np.array([self.data.patients_with(view) for view in self.data.views], dtype=np.float64)
        return np.append(super().crowds(), (holds @ holds.T).ravel())

    @property
    def memory(self) -> sent.SiteMemory:
        """State of the site between rounds."""
        if self.state is None:
            raise IntegrityError(
                "the site must hold the memory of this fit; got none", where=self.site, hint="Start the run again."
            )
        return self.state

    @property
    def layout(self) -> Layout:
        """Order and widths of the agreed views in a stacked row."""
        return Layout(self.memory.views, tuple(self.memory.sizes[view] for view in self.memory.views))

    @property
    def law(self) -> LatentLaw:
        """The site's own case mix."""
        return LatentLaw(self.memory.latent_mean, self.memory.latent_covariance)

    @property
    def noise(self) -> Noise:
        """One noise variance per view, or one per column."""
        return "diagonal" if self.memory.noise == "diagonal" else "isotropic"

    def standard_blocks(self) -> Iterator[Floats]:
        """Yield the site's rows in the agreed units, shape (m, d) a block, not-a-number where missing."""
        for rows in self.blocks(Stacking(self.memory.views, self.memory.sizes)):
            yield (rows - self.memory.centre) / self.memory.spread

    @property
    def local_rows(self) -> SiteRows:
        """The rows, reduced to what the fit needs; made once."""
        if self._rows is None:
            memory = self.memory
            self._rows = SiteRows(
                self.standard_blocks, self.layout, memory.incomplete, self.noise, memory.case_mix_weight
            )
        return self._rows

    def _require_complete(self, ask: sent.Standards) -> None:
        observed, start = self._count_entries(Stacking(ask.views, ask.sizes)), 0
        for view in ask.views:
            names = ask.columns[view]
            counts = observed[start : start + len(names)]
            start += len(names)
            if lacking := [name for name, n in zip(names, counts, strict=True) if n < len(self.data)]:
                raise DataError(
                    "each patient must have an entry in each column of the view; got no entry for some patient",
                    where=place(view, *lacking),
                    hint="Under differential privacy each patient needs each view: the release would show who lacks "
                    "one. Leave the view or those patients out at every site, or impute them at the site.",
                )

    def _require_local_fit(self, *, isolated: bool) -> None:
        """Raise DataError for columns that do not determine the site's parameters.

        A constant column has no noise: the likelihood is unbounded as its noise variance tends to zero. A column
        without an entry has no loadings if the site is `isolated`, that is, fitted without a global law.
        """
        for view in self.data.views:
            rows = self.data.array(view)
            empty, constant = np.isnan(rows).all(axis=0), np.fmax.reduce(rows) == np.fmin.reduce(rows)
            undecided = constant & (self.noise == "diagonal" or bool((constant | empty).all())) | empty & isolated
            if undecided.any():
                names = [name for name, is_one in zip(self.data.columns[view], undecided, strict=True) if is_one]
                raise DataError(
                    "each column must vary at a site with separate parameters; got one that is "
                    "empty or constant at this site",
                    where=place(view, *names),
                    hint='Take method="invariant" (and waic=False), or leave the column out at every site.',
                )

    def _local_parameters(self, prior: Prior, origin: Floats, axes: Floats) -> Parameters:
        memory = self.memory
        if memory.loadings is None or memory.mean is None or memory.noise_variance is None:
            return prior.centre(self.layout)
        return absorb_axes(Parameters(memory.loadings, memory.mean, memory.noise_variance), origin, axes)

    def _store(self, law: LatentLaw, parameters: Parameters | None = None) -> None:
        memory = dataclasses.replace(self.memory, latent_mean=law.mean, latent_covariance=law.covariance)
        if parameters is not None:
            memory = dataclasses.replace(
                memory, loadings=parameters.loadings, mean=parameters.mean, noise_variance=parameters.noise
            )
        self.state = memory

    def _contribution(self, local: LocalFit, prior: Prior, latents: SharedSums | None = None) -> sent.GlobalSums:
        sums = site_contribution(local, prior, self.layout, posterior_variance=latents is not None)
        if latents is not None:
            sums = PriorUnits.of(prior, self.layout).write(sums, self.layout)
        q = local.parameters.n_components
        return sent.GlobalSums(
            **sent.fields_of(sums),
            latent_first=np.zeros(q) if latents is None else latents.latent_first,
            latent_second=np.zeros((q, q)) if latents is None else latents.latent_second,
            n_rows=float(len(self.data)),
            objective=float(local.objective[-1]) if latents is None else latents.log_likelihood,
            patients=self.behind,
        )


def require_normal_scale(value: Floats | float, where: str) -> None:
    """Refuse units and lengths of the coordinator with which the rows would underflow or overflow."""
    if not np.all((np.abs(value) >= LEAST_SPREAD) & (np.abs(value) <= 1 / LEAST_SPREAD)):
        raise ConfigurationError(
            f"{where} must be from {LEAST_SPREAD:g} to {1 / LEAST_SPREAD:g} in size; got a value outside", where=where
        )


def _prior(ask: sent.Global) -> Prior:
    return Prior(**sent.fields_of(ask, Prior))
