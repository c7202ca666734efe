"""Site part of the federated Cox model: every step that a coordinator can ask of a site.

What leaves are sums over patients, as terms of sums over sites. With baselines of the sites' own no time leaves, and
nothing by time; with a shared grid, sums over those at risk leave for each of its times. The steps that answer for the
site alone are :meth:`CoxSite.fit_own`, :meth:`CoxSite.solve_surrogate`, :meth:`CoxSite.offer_lead` and, of every
tabular method, ``report_gaps``.

A sum is the same whether it is masked or not. Unmasked, its answer states on how many patients it rests in effect:
those of the smallest cell, fewer where hazard ratios let a few outweigh the others. The guard refuses too few.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Lengths, Message, Nothing
from multicentre.federation.steps import step
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.followed import (
    FEWEST_OWN,
    CoxPatients,
    check_alpha,
    check_values,
    fit_own,
    hazards_of,
    own_terms,
    ties_of,
)
from multicentre.survival.cox.maths.inference import covariance, reliable
from multicentre.survival.cox.maths.residuals import RiskMeans, risk_means, schoenfeld_sums, score_products, score_sizes
from multicentre.survival.kernels.cox import (
    Likelihood,
    derive,
    maximise,
)
from multicentre.survival.kernels.risk_sets import RiskSets, weighted_products

Floats = NDArray[np.float64]


class CoxSite(CoxPatients):
    """The site part of the federated Cox model."""

    method: ClassVar[str] = "fed-cox"
    lengths: ClassVar[Lengths] = {
        "K": "times of events",
        "t": "times of events, or those of them that several patients share",
    }

    def n_parameters(self, ask: Message) -> int:
        """Return the number of coefficients, one per column, of what is asked at coefficients or fitted here."""
        return len(self.data.columns) if isinstance(ask, sent.At | sent.Penalty) else 0

    @step(releases=sent.Derivatives, when="every round", summed=True)
    def sum_derivatives(self, ask: sent.At) -> sent.Derivatives:
        """Derive the partial likelihood of the site's own patients, at their own times."""
        self._check(ask.coefficients)
        own = self._own
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
        return sent.Risk(**self._risk(ask, exact=False))

    @step(releases=sent.ExactRisk, when="every round", summed=True)
    def sum_exact_risk(self, ask: sent.AtShared) -> sent.ExactRisk:
        """Sum over the patients at risk at each time of an event at any site."""
        return sent.ExactRisk(**self._risk(ask, exact=True))

    @step(releases=sent.Products, when="every round", summed=True)
    def sum_products(self, ask: sent.Hazards) -> sent.Products:
        """Sum products of columns, each patient weighted by the hazard that all sites' baseline gives on the grid."""
        products, patients = self._products(ask, exact=False)
        return sent.Products(products, patients=patients)

    @step(releases=sent.ExactProducts, when="every round", summed=True)
    def sum_exact_products(self, ask: sent.Hazards) -> sent.ExactProducts:
        """Sum the same, by a baseline at each time of an event at any site."""
        products, patients = self._products(ask, exact=True)
        return sent.ExactProducts(products, patients=patients)

    @step(releases=sent.Baseline, when="at the end", summed=True)
    def sum_baseline(self, ask: sent.AtShared) -> sent.Baseline:
        """Count events and sum hazard ratios over those at risk, at each time of a coarse grid."""
        shared, theta, patients = self._weighed(ask, exact=False)
        return sent.Baseline(shared.events, shared.at_risk(theta), patients=patients)

    @step(releases=sent.Products, when="at the end", summed=True)
    def sum_own_scores(self, ask: sent.At) -> sent.Products:
        """Sum products of the patients' score residuals among themselves, for robust errors."""
        self._check(ask.coefficients)
        own = self._own
        if not own.n_times:
            return sent.Products(np.zeros((own.rows.shape[1],) * 2), patients=len(self.data))
        theta, means = self._own_means(own, ask)
        patients = min(self._behind(own, ask), self._effective(score_sizes(own, theta, means)))
        return sent.Products(score_products(own, theta, means), patients=patients)

    @step(releases=sent.Products, when="at the end", summed=True)
    def sum_scores(self, ask: sent.Means) -> sent.Products:
        """Sum products of the patients' score residuals among those of all sites on the grid, for robust errors."""
        products, patients = self._scores(ask, exact=False)
        return sent.Products(products, patients=patients)

    @step(releases=sent.ExactProducts, when="at the end", summed=True)
    def sum_exact_scores(self, ask: sent.Means) -> sent.ExactProducts:
        """Sum the same, at each time of an event at any site."""
        products, patients = self._scores(ask, exact=True)
        return sent.ExactProducts(products, patients=patients)

    @step(releases=sent.Residuals, when="on request", summed=True)
    def sum_own_residuals(self, ask: sent.Transform) -> sent.Residuals:
        """Sum Schoenfeld's residuals among the site's own patients, for a test of proportional hazards."""
        self._check(ask.coefficients, ask.transform)
        own = self._own
        grid, cells = self._own_on_grid
        mean, patients = np.zeros((0, own.rows.shape[1])), len(self.data)
        if own.n_times:
            mean, patients = self._own_means(own, ask)[1].mean, self._behind_own_times(own, grid, cells, ask)
        return sent.Residuals(**_residuals(own, mean, grid.reached, ask.transform), patients=patients)

    @step(releases=sent.Residuals, when="on request", summed=True)
    def sum_residuals(self, ask: sent.Means) -> sent.Residuals:
        """Sum Schoenfeld's residuals among the patients of all sites on the grid, for a test of proportionality."""
        return sent.Residuals(**self._shared_residuals(ask, exact=False))

    @step(releases=sent.ExactResiduals, when="on request", summed=True)
    def sum_exact_residuals(self, ask: sent.Means) -> sent.ExactResiduals:
        """Sum the same, at each time of an event at any site."""
        return sent.ExactResiduals(**self._shared_residuals(ask, exact=True))

    @step(releases=sent.Estimates, when="once", summed=True)
    def sum_estimates(self, ask: sent.Penalty) -> sent.Estimates:
        """Fit the site's own patients, and send the estimate weighted by its information, for a mean over sites."""
        check_alpha(ask.alpha)
        own, n_columns = self._own, len(self.agreed.columns)
        found = fit_own(own, ask.alpha, ties_of(ask.efron))
        if found is None:
            return sent.Estimates(np.zeros((n_columns, n_columns)), np.zeros(n_columns), patients=len(self.data))
        behind = self._behind(own, sent.At(found.coefficients, ask.efron))
        return sent.Estimates(found.information, found.information @ found.coefficients, patients=behind)

    @step(releases=sent.LeadOffer, when="once", refusable=True)
    def offer_lead(self, ask: Nothing) -> sent.LeadOffer:
        """Count the site's events, so that the site with most can lead a fit in one round.

        A sum cannot tell the sites apart. A site that refuses, for too few events or since only sums may leave it,
        does not lead.
        """
        n_events = int(self._own.n_events.sum())
        return sent.LeadOffer(float(n_events), patients=n_events)

    @step(releases=sent.Solution, when="once", addressed="each")
    def solve_surrogate(self, ask: sent.Surrogate) -> sent.Solution:
        """Climb the site's own likelihood, bent to have the derivatives of all sites where they were taken.

        A sum cannot answer: one site's likelihood takes the part of all. Asked of one site, once, for one round.
        """
        self.ask_only_once("solve_surrogate", ask)
        self._check(ask.coefficients)
        check_alpha(ask.alpha)
        _check_surrogate(ask, self.agreed.n_events)
        own = self._own
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

        reached = maximise(evaluate, start, ask.alpha)
        if not (reached.converged and np.isfinite(reached.coefficients).all()):
            return sent.Solution(np.zeros(len(start)), patients=0)
        ends = [sent.At(coefficients, ask.efron) for coefficients in (start, reached.coefficients)]
        return sent.Solution(reached.coefficients, patients=min(self._behind(own, end) for end in ends))

    @step(releases=sent.OwnFit, when="on request", refusable=True)
    def fit_own(self, ask: sent.Penalty) -> sent.OwnFit:
        """Fit the site's own patients, and tell coefficients and errors.

        A sum cannot answer for one site. Asked for when an analyst wants to see how far the sites differ.
        """
        check_alpha(ask.alpha)
        own, nothing = self._own, np.zeros(len(self.agreed.columns))
        found = fit_own(own, ask.alpha, ties_of(ask.efron))
        if found is None:
            return sent.OwnFit(nothing, nothing, patients=0)
        known = reliable(ask.alpha * found.coefficients, found.information, float(own.n_events.sum()))
        errors = np.sqrt(np.diagonal(covariance(found.information, ask.alpha, known)))
        behind = self._behind(own, sent.At(found.coefficients, ask.efron))
        return sent.OwnFit(np.where(known, found.coefficients, 0.0), np.where(known, errors, 0.0), patients=behind)

    def _weighed(self, ask: sent.AtShared, *by_time: Floats, exact: bool) -> tuple[RiskSets, Floats, int]:
        """Return the patients at shared times, their hazard ratios, and how many sums by time rest on in effect."""
        self._check(ask.coefficients, *by_time)
        shared, cells = self._shared(exact=exact)
        theta = hazards_of(shared, ask)
        return shared, theta, self._behind_times(shared, cells, theta)

    def _risk(self, ask: sent.AtShared, *, exact: bool) -> dict[str, Any]:
        shared, theta, patients = self._weighed(ask, exact=exact)
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
            "patients": patients,
        }

    def _products(self, ask: sent.Hazards, *, exact: bool) -> tuple[Floats, int]:
        shared, theta, patients = self._weighed(ask, ask.first, ask.first_tied, exact=exact)
        weights = shared.own_hazards(theta, ask.first, ask.first_tied)
        return weighted_products(shared.rows, weights), min(patients, self._effective(weights))

    def _scores(self, ask: sent.Means, *, exact: bool) -> tuple[Floats, int]:
        by_time = ask.first, ask.first_tied, ask.mean, ask.spent, ask.spent_tied
        shared, theta, patients = self._weighed(ask, *by_time, exact=exact)
        means = RiskMeans(*by_time)
        return score_products(shared, theta, means), min(patients, self._effective(score_sizes(shared, theta, means)))

    def _shared_residuals(self, ask: sent.Means, *, exact: bool) -> dict[str, Any]:
        self._check(ask.coefficients, ask.mean, ask.transform)
        shared, cells = self._shared(exact=exact)
        return {**_residuals(shared, ask.mean, shared.reached, ask.transform), "patients": self.behind(cells)}

    def _own_means(self, own: RiskSets, ask: sent.At) -> tuple[Floats, RiskMeans]:
        theta, terms = own_terms(own, ask)
        return theta, risk_means(own.events, own.sums(theta, ties_of(ask.efron)), terms)


def _residuals(patients: RiskSets, mean: Floats, reached: NDArray[np.int64], transform: Floats) -> dict[str, Any]:
    check_values(transform)
    values = transform[np.maximum(reached, 1) - 1]
    plain, weighted = schoenfeld_sums(patients, mean, values)
    own = values[patients.happened]
    return {
        "n_events": float(patients.n_events.sum()),
        "value": float(own.sum()),
        "squared_value": float(own @ own),
        "plain": plain,
        "weighted": weighted,
    }


def _check_surrogate(ask: sent.Surrogate, n_events: float) -> None:
    """Raise ConfigurationError for derivatives that are not those of all sites' events."""
    far = max(float(np.abs(each).max(initial=0.0)) for each in (ask.gradient, ask.information))
    if not (0.5 < ask.n_events <= n_events + 0.5 and far <= sent.PRODUCTS):
        raise ConfigurationError("they are not derivatives of all sites", where="ask", hint="Begin a new fit.")
