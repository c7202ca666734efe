"""Site part of Fed-mv-PPCA: the steps that a coordinator can request and their answers.

Steps inherited from multiview/agreement.py: ``describe``, ``column_orders``, ``column_totals`` and ``column_squares``.

Releases are declared in multiview/ppca/messages.py, those of inherited steps in multiview/agreement.py. All are terms
of sums over sites, except the answers of ``describe`` (names of views and columns) and ``check_enough_rows``.

A site converts its rows to the agreed units and reduces them to counts, means and second moments. The site's parameters
and case mix stay at the site.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.blocks import place
from multicentre.errors import ConfigurationError, DataError, IntegrityError
from multicentre.multiview.agreement import MIN_SPREAD, MultiViewPart, Stacking, check_columns
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths import regression, selection
from multicentre.multiview.ppca.maths.describe import add_up, describe_rows
from multicentre.multiview.ppca.maths.hierarchy import Expectation, LatentSums, fit_around
from multicentre.multiview.ppca.maths.latent_step import multiply_differences
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, NoiseModel, Parameters, change_axes
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior, PriorUnits, site_contribution
from multicentre.multiview.ppca.maths.private import Clipping, mean_by_person, sum_outer_products
from multicentre.multiview.ppca.maths.rows import SiteRows


class MvPPCASite(MultiViewPart):
    """Site part of Fed-mv-PPCA."""

    method: ClassVar[str] = "fed-mv-ppca"
    revision: ClassVar[int] = 2
    clips_persons: ClassVar[bool] = True
    remembers: ClassVar[type[Message]] = messages.SiteMemory
    lengths: ClassVar[Lengths] = {
        "q": Length("latent dimensions", "n_components"),
        "e": "latent dimensions, and one for the mean",
        "g": "views, or columns where the model has a noise of each column or entries are missing",
        "p": "products of two columns of a row, or random directions",
        "c": "ways to predict a view: the latent model, and ridge regression by its shrinkage",
    }
    state: messages.SiteMemory | None = None
    _rows: SiteRows | None = None

    @step(releases=Acknowledgement, when="once")
    def prepare(self, request: messages.Standards) -> Acknowledgement:
        """Set the agreed units; the case mix of the site starts as the standard one."""
        check_columns(self.data, request.columns)
        require_normal_scale(request.spread, "spread")
        if request.complete:
            self._require_complete(request)
        law = LatentLaw.standard(request.n_components)
        self.state = messages.SiteMemory(
            **messages.fields_of(request),
            latent_mean=np.stack([law.mean] * 2),
            latent_covariance=np.stack([law.covariance] * 2),
        )
        self._rows = None
        return Acknowledgement()

    @step(releases=messages.MinimumMet, when="once")
    def check_enough_rows(self, request: Nothing) -> messages.MinimumMet:
        """Check that the site has enough patients for draws of its parameters, for the WAIC."""
        rows = self.local_rows
        self._require_local_fit(isolated=True)
        selection.require_enough_rows(rows.values[:, rows.observed_features], self.memory.n_components)
        return messages.MinimumMet(enough=True, patients=self.fewest)

    @step(releases=messages.FirstMoments, when="once", summed=True)
    def sum_first_moments(self, request: Nothing) -> messages.FirstMoments:
        """Count patients by pair of views; sum the columns and their squares about the site's mean."""
        sums = self.local_rows.first_moments()
        return messages.FirstMoments(sums.pairs, sums.total, sums.variances, patients=self.behind())

    @step(releases=messages.Products, when="once", summed=True)
    def multiply_moments(self, request: messages.Directions) -> messages.Products:
        """Multiply second moments with directions (above 400 columns: four times), for the start."""
        return messages.Products(
            self.local_rows.multiply_moments(request.directions, request.pairs), patients=self.behind()
        )

    @step(releases=messages.OuterProducts, when="once", summed=True)
    def sum_outer_products(self, request: messages.Clip) -> messages.OuterProducts:
        """Shorten each row to a common length and sum products of columns, for a differentially private fit only.

        A patient with several records counts with the mean of the shortened rows.
        """
        require_normal_scale(request.radius, "radius")
        if not self.memory.complete:
            raise ConfigurationError(
                "the preparation must be that of a private fit; got a fit without epsilon", where="sum_outer_products"
            )
        clipping = Clipping(request.radius, self.layout.n_features)
        blocks = self.standard_blocks()
        if self.persons is not None:
            blocks = iter([mean_by_person(blocks, self.persons, request.radius)])
        return messages.OuterProducts(sum_outer_products(blocks, clipping), patients=self.fewest)

    @step(releases=messages.SharedSums, when="every round", summed=True)
    def fit_shared(self, request: messages.Shared) -> messages.SharedSums:
        """Update the site's case mix; return the sums for the parameters that all sites share."""
        before = self._law_before(request)
        shared = Parameters(request.loadings, request.mean, request.noise)
        sums, law = self.local_rows.answer(shared, before, intercept_variance=request.intercept_variance)
        self._store_laws(request, law)
        on_mean = bool(request.intercept_variance.any())
        return messages.SharedSums(
            **messages.fields_of(sums),
            latent_pull=law.pull(self.memory.case_mix_weight, on_mean=on_mean),
            latent_weight=self._latent_weight() + on_mean,
            log_prior=law.log_prior(self.memory.case_mix_weight, on_mean=on_mean),
            patients=self.behind(),
        )

    @step(releases=messages.GlobalSums, when="every round", summed=True)
    def fit_around(self, request: messages.AroundRequest) -> messages.GlobalSums:
        """Fit the site's own parameters and case mix around the global law; return the differences."""
        self._require_local_fit(isolated=False)
        prior, law = _prior(request), self._law_before(request)
        site = self.local_rows.around(prior, request.point_variance)
        before = self._sums_before(request) or site.start(prior.centre(self.layout), law)
        local, after, law, latents = fit_around(site, before, law, n_iterations=request.n_iterations)
        self._store_laws(request, law)
        self._store_sums(before, after)
        return self._contribution(local, prior, (latents, law))

    @step(releases=messages.WaicParts, when="on request", summed=True)
    def draw_waic(self, request: messages.Draws) -> messages.WaicParts:
        """Draw the site's parameters given its rows, and sum the log predictive densities of the rows."""
        observed = self.local_rows.observed_features
        parts = selection.waic_parts(
            self.local_rows.values[:, observed],
            self.layout.keep(self.data.views),
            Parameters(request.loadings, request.mean, request.noise).restrict(observed),
            self.generator(request.seed),
            noise=self.noise,
            n_draws=request.n_draws,
            n_burn=request.n_burn,
        )
        return messages.WaicParts(parts.lppd, parts.p_waic, float(parts.n_rows), patients=self.behind())

    @step(releases=messages.Evaluation, when="at the end", summed=True)
    def evaluate(self, request: messages.Law) -> messages.Evaluation:
        """Sum log-likelihood, errors and variance explained over the site's rows."""
        law = Parameters(request.loadings, request.mean, request.noise)
        sums = add_up(
            describe_rows(X, law, self.layout, self.memory.spread / request.deviation) for X in self.standard_blocks()
        )
        return messages.Evaluation(**messages.fields_of(sums), patients=self.behind())

    @step(releases=messages.CompletedProducts, when="at the end", summed=True)
    def complete_products(self, request: messages.Law) -> messages.CompletedProducts:
        """Sum products of columns; entries that a patient lacks are replaced by their expectation."""
        law = Parameters(request.loadings, request.mean, request.noise)
        products = sum(regression.complete_products(X, law) for X in self.standard_blocks())
        return messages.CompletedProducts(np.asarray(products), float(len(self.data)), patients=self.behind())

    @step(releases=messages.PredictionErrors, when="at the end", summed=True)
    def compare_predictions(self, request: messages.Comparison) -> messages.PredictionErrors:
        """Predict each view from the others, by moments without this site's patients; sum the errors."""
        law = Parameters(request.loadings, request.mean, request.noise)
        sums = regression.compare_candidates(
            self.local_rows.values, law, request.products, request.n_rows, self.layout, request.sites
        )
        return messages.PredictionErrors(**messages.fields_of(sums), patients=self.behind())

    def patient_counts(self) -> Floats:
        """Return the number of patients with an entry, by column, and with both views, by pair of views."""
        holds = np.array([self.data.patients_with(view) for view in self.data.views], dtype=np.float64)
        return np.append(super().patient_counts(), (holds @ holds.T).ravel())

    @property
    def memory(self) -> messages.SiteMemory:
        """State of the site between rounds."""
        if self.state is None:
            raise IntegrityError(
                "the site must have the state of this fit; got none", where=self.site, hint="Start the run again."
            )
        return self.state

    @property
    def layout(self) -> Layout:
        """Order and widths of the agreed views in a stacked row."""
        return Layout(self.memory.views, tuple(self.memory.sizes[view] for view in self.memory.views))

    @property
    def law(self) -> LatentLaw:
        """The site's own case mix."""
        return LatentLaw(self.memory.latent_mean[1], self.memory.latent_covariance[1])

    @property
    def noise(self) -> NoiseModel:
        """One noise variance per view, or one per column."""
        return "diagonal" if self.memory.noise == "diagonal" else "isotropic"

    def standard_blocks(self) -> Iterator[Floats]:
        """Yield the site's rows in the agreed units, shape (m, d) a block, not-a-number where missing."""
        for rows in self.blocks(Stacking(self.memory.views, self.memory.sizes)):
            yield (rows - self.memory.centre) / self.memory.spread

    @property
    def local_rows(self) -> SiteRows:
        """Rows as moments, or as entries if some are missing; computed once."""
        if self._rows is None:
            memory = self.memory
            self._rows = SiteRows(
                self.standard_blocks, self.layout, memory.incomplete, self.noise, memory.case_mix_weight
            )
        return self._rows

    def _require_complete(self, request: messages.Standards) -> None:
        observed, start = self._count_entries(Stacking(request.views, request.sizes)), 0
        for view in request.views:
            names = request.columns[view]
            counts = observed[start : start + len(names)]
            start += len(names)
            if lacking := [name for name, n in zip(names, counts, strict=True) if n < len(self.data)]:
                raise DataError(
                    "each patient must have an entry in each column of the view; got missing entries",
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
                    "each column must vary at a site with separate parameters; got a constant or empty column",
                    where=place(view, *names),
                    hint='Take method="invariant" (and waic=False), or leave the column out at every site.',
                )

    def _law_before(self, request: messages.Shared | messages.Global) -> LatentLaw:
        """Return the site's case mix as it was, without the last round if that is refused, in the request's units."""
        memory, last = self.memory, 0 if request.undo else 1
        law = LatentLaw(memory.latent_mean[last], memory.latent_covariance[last])
        weight = memory.case_mix_weight
        share = weight / (weight + self.local_rows.n_rows) if weight else 0.0
        return change_axes(law, request.gauge_mean, request.gauge_axes, prior_share=share)

    def _store_laws(self, request: messages.Shared | messages.Global, law: LatentLaw) -> None:
        """Keep the case mix before and after the round; a request to undo the round gives units from the first."""
        memory, last = self.memory, 0 if request.undo else 1
        self.state = dataclasses.replace(
            memory,
            latent_mean=np.stack([memory.latent_mean[last], law.mean]),
            latent_covariance=np.stack([memory.latent_covariance[last], law.covariance]),
        )

    def _sums_before(self, request: messages.Global) -> LatentSums | None:
        """Return the state of the local fit as it was, without the last round if that is refused, in new units."""
        memory, last = self.memory, 0 if request.undo else 1
        if memory.cross is None:
            return None
        stored = (memory.cross, memory.second, memory.squares, memory.reference, memory.noise_variance)
        sums = LatentSums(*(both[last] for both in stored if both is not None))
        return sums.in_axes(request.gauge_mean, request.gauge_axes)

    def _store_sums(self, before: LatentSums, after: LatentSums) -> None:
        """Keep the state of the local fit before and after the round."""
        self.state = dataclasses.replace(
            self.memory,
            cross=np.stack([before.cross, after.cross]),
            second=np.stack([before.second, after.second]),
            squares=np.stack([before.squares, after.squares]),
            reference=np.stack([before.reference, after.reference]),
            noise_variance=np.stack([before.noise, after.noise]),
        )

    def _contribution(
        self, local: LocalFit, prior: Prior, latents: tuple[Expectation, LatentLaw] | None = None
    ) -> messages.GlobalSums:
        """Write a local fit as terms of sums; with the moments of the latents and the case mix where it has them."""
        sums = site_contribution(local, prior, self.layout, posterior_variance=latents is not None)
        q = local.parameters.n_components
        none = np.zeros((q, q))
        first, second, pull, products = np.zeros(q), none, none, np.zeros((self.layout.n_views, q + 1, q + 1))
        if latents is not None:
            expectation, law = latents
            sums = PriorUnits.of(prior, self.layout).write(sums, self.layout)
            first, second = expectation.latent_first, expectation.latent_second
            pull = law.pull(self.memory.case_mix_weight, on_mean=False)
            products = multiply_differences(sums.loadings, sums.mean, self.layout)
        return messages.GlobalSums(
            **messages.fields_of(sums),
            latent_first=first,
            latent_second=second,
            products=products,
            latent_pull=pull,
            latent_weight=0.0 if latents is None else self._latent_weight(),
            n_rows=float(len(self.data)),
            objective=float(local.objective[-1]),
            patients=self.behind(),
        )

    def _latent_weight(self) -> float:
        """Return the curvature of the prior of the site's case mix, in patients."""
        weight, n = self.memory.case_mix_weight, self.local_rows.n_rows
        return weight * n / (weight + n)


def require_normal_scale(value: Floats | float, where: str) -> None:
    """Refuse units and lengths of the coordinator with which the rows would underflow or overflow."""
    if not np.all((np.abs(value) >= MIN_SPREAD) & (np.abs(value) <= 1 / MIN_SPREAD)):
        raise ConfigurationError(
            f"{where} must be from {MIN_SPREAD:g} to {1 / MIN_SPREAD:g} in size; got a value outside", where=where
        )


def _prior(request: messages.Global) -> Prior:
    return Prior(**messages.fields_of(request, Prior))
