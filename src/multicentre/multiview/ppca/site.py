"""Fed-mv-PPCA beside the patients: all that a coordinator can ask of a site, and all that the site answers.

A site brings its rows to the agreed units and reduces them to counts, means and second moments. Its own parameters and
its case mix stay here; what leaves is declared in :mod:`~multicentre.multiview.ppca.messages`, as terms of sums.
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
from multicentre.multiview.ppca.maths.axes import absorb_axes, change_axes
from multicentre.multiview.ppca.maths.describe import add_up, describe_rows
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior, site_contribution
from multicentre.multiview.ppca.maths.private import Clipping, mean_by_person, sum_outer_products
from multicentre.multiview.ppca.maths.problem import Noise
from multicentre.multiview.ppca.maths.rows import SiteRows
from multicentre.multiview.ppca.maths.units import PriorUnits


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
        """Take in the agreed units; the site's own case mix starts as the standard one."""
        check_columns(self.data, ask.columns)
        require_sober(ask.spread, "spread")
        if ask.complete:
            self._require_complete(ask)
        law = LatentLaw.standard(ask.n_components)
        self.state = sent.SiteMemory(**sent.fields_of(ask), latent_mean=law.mean, latent_covariance=law.covariance)
        self._rows = None
        return Acknowledgement()

    @step(releases=sent.Enough, when="once")
    def check_enough_rows(self, ask: Nothing) -> sent.Enough:
        """Tell that there are enough patients for the site's parameters to be drawn, for the WAIC."""
        rows = self.local_rows
        self._require_own_fit(alone=True)
        selection.require_enough_rows(rows.values[:, rows.shown], self.memory.n_components)
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
        """Shorten each row to a common length and sum products of columns, for a differentially private fit alone.

        Patients with several records stand in with the mean of their shortened rows.
        """
        require_sober(ask.radius, "radius")
        if not self.memory.complete:
            raise ConfigurationError("the site was not prepared for a private fit", where="sum_outer_products")
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
        self._remember(law)
        return sent.SharedSums(**sent.fields_of(sums), patients=self.behind)

    @step(releases=sent.GlobalSums, when="every round", summed=True)
    def fit_around(self, ask: sent.AroundAsk) -> sent.GlobalSums:
        """Fit the site's own parameters and case mix around the global law; write their differences to it."""
        self._require_own_fit(alone=False)
        prior = _prior(ask)
        law = change_axes(self.law, ask.gauge_mean, ask.gauge_axes)
        start = self._own(prior, ask.gauge_mean, ask.gauge_axes)
        local, law, sums = self.local_rows.fit_around(start, law, prior, ask.n_iterations)
        self._remember(law, local.parameters)
        return self._contribution(local, prior, sums)

    @step(releases=sent.WaicParts, when="on request", summed=True)
    def draw_waic(self, ask: sent.Draws) -> sent.WaicParts:
        """Draw the site's own parameters given its rows, and sum how well they predict them."""
        shown = self.local_rows.shown
        parts = selection.waic_parts(
            self.local_rows.values[:, shown],
            self.layout.keep(self.data.views),
            Parameters(ask.loadings, ask.mean, ask.noise).restrict(shown),
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
        """Return how many patients have an entry, by column, and how many have both views, by pair of views."""
        holds = np.array([self.data.patients_with(view) for view in self.data.views], dtype=np.float64)
        return np.append(super().crowds(), (holds @ holds.T).ravel())

    @property
    def memory(self) -> sent.SiteMemory:
        """What the site remembers."""
        if self.state is None:
            raise IntegrityError("the site remembers nothing of this fit", where=self.site, hint="Start the run anew.")
        return self.state

    @property
    def layout(self) -> Layout:
        """How the agreed views stand side by side."""
        return Layout(self.memory.views, tuple(self.memory.sizes[view] for view in self.memory.views))

    @property
    def law(self) -> LatentLaw:
        """The site's own case mix."""
        return LatentLaw(self.memory.latent_mean, self.memory.latent_covariance)

    @property
    def noise(self) -> Noise:
        """One noise variance a view, or one a column."""
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
        shown, start = self._count_entries(Stacking(ask.views, ask.sizes)), 0
        for view in ask.views:
            names = ask.columns[view]
            counts = shown[start : start + len(names)]
            start += len(names)
            if lacking := [name for name, n in zip(names, counts, strict=True) if n < len(self.data)]:
                raise DataError(
                    "some patient has no entry in some column of the view",
                    where=place(view, *lacking),
                    hint="Under differential privacy each patient needs each view: who lacks one would be told. Leave "
                    "the view or those patients out at every site, or impute them at the site.",
                )

    def _require_own_fit(self, *, alone: bool) -> None:
        """Refuse columns that leave the site's own parameters undecided.

        A constant one has no noise: as its own noise variance falls to zero, the likelihood grows without end. One
        without an entry has no loadings where the site is `alone`, without a global law around which they lie.
        """
        for view in self.data.views:
            rows = self.data.array(view)
            empty, constant = np.isnan(rows).all(axis=0), np.fmax.reduce(rows) == np.fmin.reduce(rows)
            undecided = constant & (self.noise == "diagonal" or bool((constant | empty).all())) | empty & alone
            if undecided.any():
                names = [name for name, is_one in zip(self.data.columns[view], undecided, strict=True) if is_one]
                raise DataError(
                    "the column is empty or constant at this site, which leaves the site's own parameters undecided",
                    where=place(view, *names),
                    hint='Take method="invariant" (and waic=False), or leave the column out at every site.',
                )

    def _own(self, prior: Prior, origin: Floats, axes: Floats) -> Parameters:
        memory = self.memory
        if memory.loadings is None or memory.mean is None or memory.noise_variance is None:
            return prior.centre(self.layout)
        return absorb_axes(Parameters(memory.loadings, memory.mean, memory.noise_variance), origin, axes)

    def _remember(self, law: LatentLaw, own: Parameters | None = None) -> None:
        kept = dataclasses.replace(self.memory, latent_mean=law.mean, latent_covariance=law.covariance)
        if own is not None:
            kept = dataclasses.replace(kept, loadings=own.loadings, mean=own.mean, noise_variance=own.noise)
        self.state = kept

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


def require_sober(asked: Floats | float, where: str) -> None:
    """Refuse units and lengths in which no patient's row could be measured: a coordinator may not choose them so."""
    if not np.all((np.abs(asked) >= LEAST_SPREAD) & (np.abs(asked) <= 1 / LEAST_SPREAD)):
        raise ConfigurationError("a unit or a length is far too small or too large", where=where)


def _prior(ask: sent.Global) -> Prior:
    return Prior(**sent.fields_of(ask, Prior))
