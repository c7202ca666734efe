"""The Cox model beside the patients: all that a coordinator can ask of a site, and all that it answers.

What leaves are sums over patients, as terms of sums over sites. With baselines of the sites' own no time leaves, and
nothing by time; with a shared grid, sums over those at risk leave for each of its times. Only :meth:`CoxSite.fit_own`
and :meth:`CoxSite.solve_surrogate` answer for the site alone.

Where sums are not masked, times of the grid are joined until no difference between two rests on fewer patients than the
policy wants, and a site with fewer events than that counts as one without.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.federation.steps import step
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.followed import CoxPatients, hazards_of, ties_of
from multicentre.survival.cox.maths.inference import covariance, identified
from multicentre.survival.cox.maths.residuals import RiskMeans, risk_means, schoenfeld_sums, score_products
from multicentre.survival.kernels.cox import (
    Likelihood,
    Maximum,
    derive,
    hazard_ratios,
    maximise,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import RiskSets, weighted_products

Floats = NDArray[np.float64]
FEWEST_OWN = 3


class CoxSite(CoxPatients):
    """The site part of the federated Cox model."""

    method: ClassVar[str] = "fed-cox"

    @step(releases=sent.Derivatives, when="every round", summed=True)
    def sum_derivatives(self, ask: sent.At) -> sent.Derivatives:
        """Derive the partial likelihood of the site's own patients, at their own times."""
        self._check(ask.coefficients)
        own = self._own()
        n_events = int(own.n_events.sum())
        found = derive(own, ask.coefficients, ties_of(ask.efron))
        behind = self._behind(own, ask) if n_events else len(self.data)
        n_patients = float(len(self.data))
        return sent.Derivatives(
            n_patients, float(n_events), found.value, found.gradient, found.information, patients=behind
        )

    @step(releases=sent.Risk, when="every round", summed=True)
    def sum_risk(self, ask: sent.AtShared) -> sent.Risk:
        """Sum over the patients at risk at each time of a coarse grid."""
        check_grid_is_coarse(self.agreed.times)
        return sent.Risk(**self._risk(ask, exact=False))

    @step(releases=sent.ExactRisk, when="every round", summed=True)
    def sum_exact_risk(self, ask: sent.AtShared) -> sent.ExactRisk:
        """Sum over the patients at risk at each time of an event at any site."""
        return sent.ExactRisk(**self._risk(ask, exact=True))

    @step(releases=sent.Products, when="every round", summed=True)
    def sum_products(self, ask: sent.Hazards) -> sent.Products:
        """Sum products of columns, each patient weighted by the hazard that all sites' baseline gives."""
        shared, _ = self._shared(exact=ask.exact)
        self._check(ask.coefficients, ask.first, ask.first_tied)
        weights = shared.own_hazards(hazards_of(shared, ask), ask.first, ask.first_tied)
        return sent.Products(weighted_products(shared.rows, weights), patients=self._effective(weights))

    @step(releases=sent.Baseline, when="at the end", summed=True)
    def sum_baseline(self, ask: sent.AtShared) -> sent.Baseline:
        """Count events and sum hazard ratios over those at risk, at each time of a coarse grid."""
        check_grid_is_coarse(self.agreed.times)
        self._check(ask.coefficients)
        shared, cells = self._shared(exact=False)
        return sent.Baseline(shared.events, shared.at_risk(hazards_of(shared, ask)), patients=self.behind(cells))

    @step(releases=sent.Products, when="at the end", summed=True)
    def sum_own_scores(self, ask: sent.At) -> sent.Products:
        """Sum products of the patients' score residuals among themselves, for robust errors."""
        self._check(ask.coefficients)
        own = self._own()
        if not own.n_times:
            return sent.Products(np.zeros((own.rows.shape[1],) * 2), patients=len(self.data))
        theta, means = self._own_means(own, ask)
        return sent.Products(score_products(own, theta, means), patients=self._behind(own, ask))

    @step(releases=sent.Products, when="at the end", summed=True)
    def sum_scores(self, ask: sent.Means) -> sent.Products:
        """Sum products of the patients' score residuals among the patients of all sites, for robust errors."""
        shared, _ = self._shared(exact=ask.exact)
        means = self._means(ask)
        found = score_products(shared, hazards_of(shared, ask), means)
        return sent.Products(found, patients=self._effective(np.ones(len(self.data))))

    @step(releases=sent.Residuals, when="on request", summed=True)
    def sum_own_residuals(self, ask: sent.Transform) -> sent.Residuals:
        """Sum Schoenfeld's residuals among the site's own patients, for a test of proportional hazards."""
        self._check(ask.coefficients, ask.transform)
        own, (shared, _) = self._own(), self._shared(exact=False)
        mean = np.zeros((0, own.rows.shape[1]))
        if own.n_times:
            mean = self._own_means(own, ask)[1].mean
        values = ask.transform[shared.reached - 1]
        return self._residuals(own, mean, values)

    @step(releases=sent.Residuals, when="on request", summed=True)
    def sum_residuals(self, ask: sent.Means) -> sent.Residuals:
        """Sum Schoenfeld's residuals among the patients of all sites, for a test of proportional hazards."""
        shared, _ = self._shared(exact=ask.exact)
        means = self._means(ask)
        values = ask.transform[np.maximum(shared.reached, 1) - 1]
        return self._residuals(shared, means.mean, values)

    @step(releases=sent.Estimates, when="once", summed=True)
    def sum_estimates(self, ask: sent.Penalty) -> sent.Estimates:
        """Fit the site's own patients, and send the estimate weighted by its information, for a mean over sites."""
        own, n_columns = self._own(), len(self.agreed.columns)
        found = _fit(own, ask)
        if found is None:
            return sent.Estimates(np.zeros((n_columns, n_columns)), np.zeros(n_columns), patients=len(self.data))
        behind = self._behind(own, sent.At(found.coefficients, ask.efron))
        return sent.Estimates(found.information, found.information @ found.coefficients, patients=behind)

    @step(releases=sent.Solution, when="once")
    def solve_surrogate(self, ask: sent.Surrogate) -> sent.Solution:
        """Climb the site's own likelihood, bent to have the derivatives of all sites where they were taken.

        A sum cannot answer: one site's likelihood takes the part of all. Asked of one site, once, for one round.
        """
        self._check(ask.coefficients)
        own = self._own()
        n_events, start = float(own.n_events.sum()), ask.coefficients
        if n_events < FEWEST_OWN:
            return sent.Solution(np.zeros(len(start)), patients=0)
        factor, ties = ask.n_events / n_events, ties_of(ask.efron)
        here = derive(own, start, ties)
        slope = ask.gradient - factor * here.gradient
        bend = ask.information - factor * here.information

        def evaluate(tried: Floats) -> Likelihood:
            found, off = derive(own, tried, ties), tried - start
            value = factor * found.value + float(slope @ off - 0.5 * off @ bend @ off)
            return Likelihood(value, factor * found.gradient + slope - bend @ off, factor * found.information + bend)

        reached = maximise(evaluate, start, ask.ridge)
        if not (reached.converged and np.isfinite(reached.coefficients).all()):
            return sent.Solution(np.zeros(len(start)), patients=0)
        return sent.Solution(reached.coefficients, patients=self._behind(own, sent.At(reached.coefficients, ask.efron)))

    @step(releases=sent.OwnFit, when="on request")
    def fit_own(self, ask: sent.Penalty) -> sent.OwnFit:
        """Fit the site's own patients, and tell coefficients and errors.

        A sum cannot answer for one site. Asked for when an analyst wants to see how far the sites differ.
        """
        own, nothing = self._own(), np.zeros(len(self.agreed.columns))
        found = _fit(own, ask)
        if found is None:
            return sent.OwnFit(nothing, nothing, patients=0)
        known = identified(found.information, float(own.n_events.sum()), ask.ridge)
        errors = np.sqrt(np.diagonal(covariance(found.information, ask.ridge, known)))
        behind = self._behind(own, sent.At(found.coefficients, ask.efron))
        return sent.OwnFit(np.where(known, found.coefficients, 0.0), np.where(known, errors, 0.0), patients=behind)

    def _risk(self, ask: sent.AtShared, *, exact: bool) -> dict[str, Any]:
        self._check(ask.coefficients)
        shared, cells = self._shared(exact=exact)
        if exact and self.behind(cells) < self.least_behind:
            raise DisclosureRefused(
                f"fewer than {self.least_behind} patients stand behind sums at exact times",
                where="times",
                mend='Ask for masked sums (secure_sum=True), or fit with times="stratified", which needs no times.',
            )
        theta = hazards_of(shared, ask)
        tables, sums = shared.tables(theta, ties_of(ask.efron)), shared.sums(theta, ties_of(ask.efron))
        told = len(self.agreed.times) if ask.efron else 0
        return {
            "n_patients": float(len(self.data)),
            "event_sum": shared.event_sum,
            "events": shared.events,
            "risk": tables.risk,
            "risk_sum": sums.risk,
            "tied": tables.tied[:told],
            "tied_sum": sums.tied[:told],
            "patients": self.behind(cells),
        }

    def _own_means(self, own: RiskSets, ask: sent.At) -> tuple[Floats, RiskMeans]:
        theta, _ = hazard_ratios(own, ask.coefficients)
        ties = ties_of(ask.efron)
        return theta, risk_means(own.events, own.sums(theta, ties), sum_terms(own.tables(theta, ties)))

    def _means(self, ask: sent.Means) -> RiskMeans:
        self._check(ask.coefficients, ask.transform, ask.first, ask.first_tied)
        if ask.mean.shape[1] != len(self.agreed.columns):
            raise ConfigurationError("means are not of the agreed columns", where="mean", mend="Begin a new fit.")
        return RiskMeans(ask.first, ask.first_tied, ask.mean, ask.spent, ask.spent_tied)

    def _residuals(self, patients: RiskSets, mean: Floats, values: Floats) -> sent.Residuals:
        plain, weighted = schoenfeld_sums(patients, mean, values)
        own, n_events = values[patients.happened], float(patients.n_events.sum())
        behind = self.behind(np.array([n_events]))
        return sent.Residuals(n_events, float(own.sum()), float(own @ own), plain, weighted, patients=behind)


def _fit(own: RiskSets, ask: sent.Penalty) -> Maximum | None:
    """Return the maximum of a site's own likelihood, None where events are few or there is none."""
    if own.n_events.sum() < FEWEST_OWN:
        return None
    found = maximise(lambda tried: derive(own, tried, ties_of(ask.efron)), np.zeros(own.rows.shape[1]), ask.ridge)
    return found if found.converged and np.isfinite(found.coefficients).all() else None
