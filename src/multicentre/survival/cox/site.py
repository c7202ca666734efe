"""Site part of the federated Cox model: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

With an offset, weights or clusters, also ``set_aside`` from survival/agreement/named_columns.py.
With a formula, also ``build_design`` and ``build_columns`` from formula/site.py, and ``count_below`` for knots from
statistics/quantiles/site.py.

Sites return sums over patients, which the coordinator adds up over sites. With a separate baseline per site, no times
and no sums by time leave the site. With a shared grid, sums over the patients at risk leave for each time of the grid.
Some steps return values of a single site: :meth:`CoxSite.fit_own`, :meth:`CoxSite.solve_surrogate` and
:meth:`CoxSite.offer_lead`.

A sum has the same value masked and unmasked. An unmasked answer states its effective number of patients: the size of
the smallest cell, or fewer if the hazard ratios of a few patients dominate. The guard refuses an answer with too few.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import R, step
from multicentre.core.withdrawal import Tentative, unless_few
from multicentre.data.rare_columns import rare_columns
from multicentre.data.records import effective_number, fewest_different
from multicentre.errors import ConfigurationError
from multicentre.survival.agreement.named_columns import NamedColumnsPart
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.cox import messages
from multicentre.survival.cox.maths import (
    RiskMeans,
    covariance,
    reliable,
    risk_means,
    schoenfeld_sums,
    score_products,
    score_sizes,
)
from multicentre.survival.kernels.partial_likelihood import (
    MAX_COEFFICIENT,
    ROUNDING,
    Likelihood,
    Maximum,
    Terms,
    fewest_at_risk,
    hazard_ratios,
    information,
    is_dominated,
    maximise,
    partial_likelihood,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import RiskSets, Ties, weighted_products
from multicentre.survival.times import at_grid, by_end, to_bins

Floats = NDArray[np.float64]
# Sites with fewer events give no estimate (see FedCox.by_site).
MIN_OWN = 3
# Functions of recorded times that need no other site's times.
RECORDED = ("identity", "log")
# Smallest time relative to the horizon whose logarithm is taken.
SMALLEST_RELATIVE = 1e-12
# Risk sets, and the number of patients of each cell.
RiskSetsAndCells = tuple[RiskSets, NDArray[np.int64]]


class CoxPatients(NamedColumnsPart):
    """Base of the site part: risk sets, cached between rounds, and checks of requests."""

    has_exact_steps: ClassVar[bool] = True

    @cached_property
    def _site_risk_sets(self) -> RiskSets:
        """Risk sets of the site's patients at the site's times, up to the end of follow-up."""
        time, ends = self.data.time, self.agreed.ends
        happened = (self.data.event == self.agreed.cause) & by_end(time, ends) & self._counts
        ended = np.minimum(time, ends)
        return RiskSets.at_own_times(self.patients.standardised, ended, happened, self._weight, self._offset)

    def _shared(self, *, exact: bool) -> RiskSetsAndCells:
        """Return the risk sets at the shared times, and the number of patients in each cell.

        Raises
        ------
        ConfigurationError
            The grid of times is too fine.
        """
        if exact:
            return self._at_exact_times
        check_grid_is_coarse(self.agreed.times)
        return self._on_grid

    @cached_property
    def _on_grid(self) -> RiskSetsAndCells:
        times = self.agreed.times
        happened = (self.data.event == self.agreed.cause) & by_end(self.data.time, times[-1])
        return self._followed(self._reached, happened)

    @cached_property
    def _all_events_on_grid(self) -> RiskSetsAndCells:
        """Risk sets on the grid, including events after its end, and the number of events by time."""
        check_grid_is_coarse(self.agreed.times)
        sets, _ = self._followed(self._reached, self._site_risk_sets.happened)
        return sets, sets.n_events.astype(np.int64)

    @cached_property
    def _at_exact_times(self) -> RiskSetsAndCells:
        times = self.agreed.times
        time = at_grid(self.data.time, times)
        reached = np.searchsorted(times, time, side="right")
        happened = (self.data.event == self.agreed.cause) & (time <= times[-1]) & (reached > 0)
        return self._followed(reached, happened)

    @property
    def _reached(self) -> NDArray[np.int64]:
        """Number of times of the grid at which each patient is at risk, at least 1, shape (n,)."""
        return np.minimum(to_bins(self.data.time, self.agreed.times), len(self.agreed.times) - 1) + 1

    def _followed(self, reached: NDArray[np.int64], happened: NDArray[np.bool_]) -> RiskSetsAndCells:
        """Return risk sets, and the number of patients per time: in total, with the event, and without."""
        counts, n_times = self._counts, len(self.agreed.times)
        cells = [np.bincount(reached[of & counts]) for of in (reached >= 0, happened, ~happened)]
        rows = self.patients.standardised
        shared = RiskSets(rows, reached, happened & counts, n_times, self._weight, self._offset)
        return shared, np.concatenate(cells)

    def _behind(self, risk_sets: RiskSets, request: messages.At, fewest: int | None = None) -> int:
        """Return the effective number of patients of derivatives: the events, or fewer if few dominate risk sets.

        The fewest patients who differ in one of the columns are those of all columns, unless they are given.
        """
        if self.masked:
            return self.behind()
        theta, terms = own_terms(risk_sets, request)
        fewest = self.behind() if fewest is None else fewest
        hazards = risk_sets.own_hazards(theta, terms.first, terms.first_tied)
        n_events = int(effective_number(risk_sets.weights[risk_sets.happened]) + ROUNDING) if risk_sets.n_times else 0
        return min(n_events or len(self.data), fewest, self._rounded_down(fewest, effective_number(hazards)))

    def _behind_times(self, shared: RiskSets, cells: NDArray[np.int64], theta: Floats) -> int:
        """Return the effective number of patients of sums by time; 1 if one outweighs all others of a time.

        Sums over those at risk at two neighbouring times differ by the patients of one time, with or without the event.
        """
        if self.masked:
            return self.behind()
        groups = 2 * shared.reached + shared.happened
        if is_dominated(groups, theta) or (self._weight is not None and is_dominated(groups, shared.weights)):
            return 1
        return self._rounded_down(self.behind(cells), fewest_at_risk(shared, theta))

    def _behind_own_times(
        self, risk_sets: RiskSets, grid: RiskSets, cells: NDArray[np.int64], request: messages.At
    ) -> int:
        """Return the effective number of patients behind residuals at the site's times, summed by time of the grid."""
        if self.masked:
            return self.behind()
        theta, terms = own_terms(risk_sets, request)
        place_on_grid = np.zeros(risk_sets.n_times, dtype=np.int64)
        place_on_grid[risk_sets.reached[risk_sets.happened] - 1] = grid.reached[risk_sets.happened]
        for grid_place in np.unique(place_on_grid):
            here = place_on_grid == grid_place
            own_hazards = risk_sets.own_hazards(theta, terms.first * here, terms.first_tied * here)
            if is_dominated(np.zeros(len(own_hazards), dtype=np.int64), own_hazards):
                return 1
        return min(self.behind(cells), self._behind(risk_sets, request))

    def _unless_few(self, request: Tentative, release: R, *, exact: bool) -> R:
        """Return sums at shared times, withdrawn if too few patients decide them at the requested coefficients."""
        return unless_few(self, request, release, self.behind(self._shared(exact=exact)[1]))

    def _effective(self, weights: Floats) -> int:
        """Return the effective number of patients behind a sum with the given weights."""
        return self.behind() if self.masked else self._rounded_down(self.behind(), effective_number(weights))

    def _rounded_down(self, most: int, number: float) -> int:
        return most if number >= most else int(number + ROUNDING)

    def _check(self, coefficients: Floats, *by_time: Floats) -> None:
        """Raise ConfigurationError for arrays of other columns or times, and for coefficients that are too large."""
        agreed = self.agreed
        columns = (len(agreed.columns),)
        shaped = coefficients.shape == columns and all(
            each.shape[:1] == agreed.times.shape and each.shape[1:] in ((), columns) for each in by_time
        )
        if not (shaped and all(np.isfinite(each).all() for each in (coefficients, *by_time))):
            raise ConfigurationError(
                f"the request must hold finite values for the {columns[0]} agreed columns and {len(agreed.times)} "
                "agreed times; got other shapes or infinite values",
                where="request",
                hint="Start a new fit.",
            )
        largest = float(np.abs(coefficients).max(initial=0.0))
        if largest > MAX_COEFFICIENT:
            raise ConfigurationError(
                f"coefficients must be at most {MAX_COEFFICIENT:g} per standard deviation; got {largest:g}",
                where="coefficients",
                hint="Fit with alpha above 0.",
            )


class CoxSite(CoxPatients):
    """Site part of the federated Cox model."""

    method: ClassVar[str] = "fed-cox"
    revision: ClassVar[int] = 8
    lengths: ClassVar[Lengths] = {
        "K": "times of events",
        "t": "times of events; none with Breslow's ties",
        "c": "times of events with weights; none without",
    }

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients of a request: one per column, for derivatives or a fit at the site."""
        return len(self.data.columns) if isinstance(request, messages.At | messages.Penalty) else 0

    @step(releases=messages.Derivatives, when="every round", summed=True)
    def sum_derivatives(self, request: messages.At) -> messages.Derivatives:
        """Compute the partial likelihood of the site's patients and its derivatives."""
        self._check(request.coefficients)
        risk_sets = self._site_risk_sets
        n_events = int(risk_sets.n_events.sum())
        likelihood = partial_likelihood(risk_sets, request.coefficients, ties_of(request.efron))
        behind = self._behind(risk_sets, request) if n_events else self.behind()  # squares of columns leave anyway
        release = messages.Derivatives(
            float(len(self.data)),
            float(n_events),
            likelihood.value,
            likelihood.gradient,
            likelihood.information,
            np.square(risk_sets.rows).sum(axis=0),
            len(self.data) * risk_sets.rows.var(axis=0),
            patients=behind,
        )
        most = self.behind()
        return unless_few(self, request, release, most if self.masked or not n_events else min(n_events, most))

    # The steps at recorded times (sum_exact_*) are separate from those on a grid because the permission exact_times
    # belongs to the class of a release. From the class alone, the guard refuses a call before the step runs, the
    # disclosure card lists the permission per field and the refused steps, and the ledger records the step by name. If
    # one step did both, the agreed state would decide. The guard and the card do not read the state of a site part, so
    # the card would list sums at recorded times as permitted under every policy.

    @step(releases=messages.Risk, when="every round", summed=True)
    def sum_risk(self, request: messages.AtShared) -> messages.Risk:
        """Sum over the patients at risk at each time of a coarse grid."""
        return self._unless_few(request, messages.Risk(**self._risk(request, exact=False)), exact=False)

    @step(releases=messages.ExactRisk, when="every round", summed=True)
    def sum_exact_risk(self, request: messages.AtShared) -> messages.ExactRisk:
        """Sum over the patients at risk at each time of an event at any site."""
        return self._unless_few(request, messages.ExactRisk(**self._risk(request, exact=True)), exact=True)

    @step(releases=messages.Products, when="every round", summed=True)
    def sum_products(self, request: messages.Hazards) -> messages.Products:
        """Sum products of columns, weighted by each patient's cumulative hazard under the baseline on the grid."""
        products, patients = self._products(request, exact=False)
        return self._unless_few(request, messages.Products(products, patients=patients), exact=False)

    @step(releases=messages.ExactProducts, when="every round", summed=True)
    def sum_exact_products(self, request: messages.Hazards) -> messages.ExactProducts:
        """Sum products of columns, weighted by cumulative hazards at the times of all events."""
        products, patients = self._products(request, exact=True)
        return self._unless_few(request, messages.ExactProducts(products, patients=patients), exact=True)

    @step(releases=messages.Baseline, when="at the end", summed=True, refusable=True)
    def sum_baseline(self, request: messages.AtShared) -> messages.Baseline:
        """Count events and sum hazard ratios over those at risk, at each time of a coarse grid."""
        shared, theta, patients = self._weighed(request, exact=False)
        return messages.Baseline(shared.events, shared.at_risk(theta), patients=patients)

    @step(releases=messages.Products, when="at the end", summed=True, refusable=True)
    def sum_own_scores(self, request: messages.At) -> messages.Products:
        """Sum products of the patients' score residuals within the site, for robust errors."""
        self._check(request.coefficients)
        risk_sets = self._site_risk_sets
        if not risk_sets.n_times:
            return messages.Products(np.zeros((risk_sets.rows.shape[1],) * 2), patients=len(self.data))
        theta, means = self._own_means(risk_sets, request)
        patients = min(self._behind(risk_sets, request), self._effective(score_sizes(risk_sets, theta, means)))
        return messages.Products(self._score_products(risk_sets, theta, means), patients=patients)

    @step(releases=messages.Products, when="at the end", summed=True, refusable=True)
    def sum_scores(self, request: messages.Means) -> messages.Products:
        """Sum products of the patients' score residuals over all sites on the grid, for robust errors."""
        products, patients = self._scores(request, exact=False)
        return messages.Products(products, patients=patients)

    @step(releases=messages.ExactProducts, when="at the end", summed=True, refusable=True)
    def sum_exact_scores(self, request: messages.Means) -> messages.ExactProducts:
        """Sum products of the patients' score residuals over all sites at the times of all events."""
        products, patients = self._scores(request, exact=True)
        return messages.ExactProducts(products, patients=patients)

    @step(releases=messages.Residuals, when="on request", summed=True, refusable=True)
    def sum_own_residuals(self, request: messages.Transform) -> messages.Residuals:
        """Sum Schoenfeld residuals within the site, for a test of proportional hazards."""
        self._check(request.coefficients, request.transform)
        risk_sets = self._site_risk_sets
        grid, cells = self._all_events_on_grid
        mean, patients = np.zeros((0, risk_sets.rows.shape[1])), len(self.data)
        if risk_sets.n_times:
            mean, patients = (
                self._own_means(risk_sets, request)[1].mean,
                self._behind_own_times(risk_sets, grid, cells, request),
            )
        values = self._values_of_times(request, grid.reached)
        return messages.Residuals(**_residuals(risk_sets, mean, values), patients=patients)

    @step(releases=messages.Curvatures, when="on request", summed=True, refusable=True)
    def sum_own_curvatures(self, request: messages.Transform) -> messages.Curvatures:
        """Sum the information within the site times values of the events' times, for a score test."""
        self._check(request.coefficients, request.transform)
        risk_sets, ties = self._site_risk_sets, ties_of(request.efron)
        grid, cells = self._all_events_on_grid
        nothing = np.zeros((len(request.coefficients),) * 2)
        if not risk_sets.n_times:
            return messages.Curvatures(nothing, nothing, patients=len(self.data))
        theta, terms = own_terms(risk_sets, request)
        values, by_time = self._values_of_times(request, grid.reached), np.zeros(risk_sets.n_times)
        by_time[risk_sets.reached[risk_sets.happened] - 1] = values[risk_sets.happened]
        sums = [information(risk_sets, theta, terms.weighted(by_time**power), ties) for power in (1, 2)]
        return messages.Curvatures(*sums, patients=self._behind_own_times(risk_sets, grid, cells, request))

    @step(releases=messages.Residuals, when="on request", summed=True, refusable=True)
    def sum_residuals(self, request: messages.Means) -> messages.Residuals:
        """Sum Schoenfeld residuals over all sites on the grid, for a test of proportional hazards."""
        return messages.Residuals(**self._shared_residuals(request, exact=False))

    @step(releases=messages.ExactResiduals, when="on request", summed=True, refusable=True)
    def sum_exact_residuals(self, request: messages.Means) -> messages.ExactResiduals:
        """Sum Schoenfeld residuals over all sites at the times of all events."""
        return messages.ExactResiduals(**self._shared_residuals(request, exact=True))

    @step(releases=messages.Estimates, when="once", summed=True)
    def sum_estimates(self, request: messages.Penalty) -> messages.Estimates:
        """Fit the site's patients, and return the estimate weighted by its information, for a mean over sites."""
        check_alpha(request.alpha)
        risk_sets, n_columns = self._site_risk_sets, len(self.agreed.columns)
        maximum = fit_own(risk_sets, request.alpha, ties_of(request.efron))
        if maximum is None:
            return messages.Estimates(np.zeros((n_columns, n_columns)), np.zeros(n_columns), patients=len(self.data))
        behind = self._behind(risk_sets, messages.At(maximum.coefficients, request.efron))
        return messages.Estimates(maximum.information, maximum.information @ maximum.coefficients, patients=behind)

    @step(releases=messages.LeadOffer, when="once", refusable=True)
    def offer_lead(self, request: Nothing) -> messages.LeadOffer:
        """Count the site's events, so that the site with most can lead a fit in one round.

        The lead is chosen by comparing sites, for which a sum is not enough. A site whose policy refuses, because it
        has too few events or permits sums only, does not lead.
        """
        n_events = int(self._site_risk_sets.n_events.sum())
        return messages.LeadOffer(float(n_events), patients=n_events)

    @step(releases=messages.Solution, when="once", addressed="each")
    def solve_surrogate(self, request: messages.Surrogate) -> messages.Solution:
        """Maximise the site's likelihood, corrected to have the derivatives of all sites at the start.

        The likelihood of one site stands for that of all, so the answer is not a sum. The request goes to one site,
        once per fit in one round.
        """
        self.ask_only_once("solve_surrogate", request)
        self._check(request.coefficients)
        check_alpha(request.alpha)
        _check_surrogate(request, self.agreed.n_events)
        risk_sets = self._site_risk_sets
        n_events, start = float(risk_sets.n_events.sum()), request.coefficients
        if n_events < MIN_OWN:
            return messages.Solution(np.zeros(len(start)), patients=0)
        factor, ties = request.n_events / n_events, ties_of(request.efron)
        here = partial_likelihood(risk_sets, start, ties)
        slope = request.gradient - factor * here.gradient
        curvature = request.information - factor * here.information

        def evaluate(tried: Floats) -> Likelihood:
            local, offset = partial_likelihood(risk_sets, tried, ties), tried - start
            value = factor * local.value + float(slope @ offset - 0.5 * offset @ curvature @ offset)
            return Likelihood(
                value, factor * local.gradient + slope - curvature @ offset, factor * local.information + curvature
            )

        maximum = maximise(evaluate, start, request.alpha)
        if not (maximum.converged and np.isfinite(maximum.coefficients).all()):
            return messages.Solution(np.zeros(len(start)), patients=0)
        ends = [messages.At(coefficients, request.efron) for coefficients in (start, maximum.coefficients)]
        return messages.Solution(maximum.coefficients, patients=min(self._behind(risk_sets, end) for end in ends))

    @step(releases=messages.OwnFit, when="on request", refusable=True)
    def fit_own(self, request: messages.Penalty) -> messages.OwnFit:
        """Fit the site's patients, and return coefficients and standard errors.

        The answer describes a single site, so that an analyst can compare the sites. Columns in which fewer patients
        differ than the policy's minimum are not part of the fit: a fit that adjusts for them would be that of the other
        patients, and its difference from a fit without them would describe the few.
        """
        check_alpha(request.alpha)
        n_columns = len(self.agreed.columns)
        used = np.flatnonzero(~rare_columns(self.data.X, self.least_behind))
        nothing = np.zeros(n_columns)
        if not len(used):
            return messages.OwnFit(nothing, nothing, patients=0)
        everyone = self._site_risk_sets
        risk_sets = RiskSets(
            everyone.rows[:, used],
            everyone.reached,
            everyone.happened,
            everyone.n_times,
            everyone.weights,
            everyone.offset,
        )
        maximum = fit_own(risk_sets, request.alpha, ties_of(request.efron))
        if maximum is None:
            return messages.OwnFit(nothing, nothing, patients=0)
        is_reliable = reliable(
            request.alpha * maximum.coefficients, maximum.information, float(risk_sets.n_events.sum())
        )
        at = messages.At(maximum.coefficients, request.efron)
        behind, scores = (
            self._behind(risk_sets, at, min(self._n_effective, fewest_different(self.data.X[:, used]))),
            None,
        )
        if self._clusters is not None or not self.named.frequency:
            scores = self._score_products(risk_sets, *self._own_means(risk_sets, at))
        errors = np.sqrt(np.diagonal(covariance(maximum.information, request.alpha, is_reliable, scores)))
        coefficients, standard_errors = nothing.copy(), nothing.copy()
        coefficients[used] = np.where(is_reliable, maximum.coefficients, 0.0)
        standard_errors[used] = np.where(is_reliable, errors, 0.0)
        return messages.OwnFit(coefficients, standard_errors, patients=behind)

    def _weighed(self, request: messages.AtShared, *by_time: Floats, exact: bool) -> tuple[RiskSets, Floats, int]:
        """Return risk sets at shared times, hazard ratios, and the effective number of patients of sums by time."""
        self._check(request.coefficients, *by_time)
        shared, cells = self._shared(exact=exact)
        theta = hazards_of(shared, request)
        return shared, theta, self._behind_times(shared, cells, theta)

    def _risk(self, request: messages.AtShared, *, exact: bool) -> dict[str, Any]:
        shared, theta, patients = self._weighed(request, exact=exact)
        tables, sums = shared.tables(theta, ties_of(request.efron)), shared.sums(theta, ties_of(request.efron))
        n_tied = len(self.agreed.times) if request.efron else 0
        return {
            "n_patients": float(len(self.data)),
            "event_offset": shared.event_offset,
            "event_sum": shared.event_sum,
            "events": shared.events,
            "cases": shared.n_events if self._weight is not None else np.zeros(0),
            "risk": tables.risk,
            "risk_sum": sums.risk,
            "tied": tables.tied[:n_tied],
            "tied_sum": sums.tied[:n_tied],
            "patients": patients,
        }

    def _products(self, request: messages.Hazards, *, exact: bool) -> tuple[Floats, int]:
        shared, theta, patients = self._weighed(request, request.first, request.first_tied, exact=exact)
        weights = shared.own_hazards(theta, request.first, request.first_tied)
        return weighted_products(shared.rows, weights), min(patients, self._effective(weights))

    def _scores(self, request: messages.Means, *, exact: bool) -> tuple[Floats, int]:
        by_time = request.first, request.first_tied, request.mean, request.mean_hazard, request.mean_hazard_tied
        shared, theta, patients = self._weighed(request, *by_time, exact=exact)
        means = RiskMeans(*by_time)
        patients = min(patients, self._effective(score_sizes(shared, theta, means)))
        return self._score_products(shared, theta, means), patients

    def _score_products(self, risk_sets: RiskSets, theta: Floats, means: RiskMeans) -> Floats:
        """Sum products of the score residuals of patients or clusters, shape (d, d)."""
        return score_products(risk_sets, theta, means, self._clusters, frequency=self.named.frequency)

    def _shared_residuals(self, request: messages.Means, *, exact: bool) -> dict[str, Any]:
        self._check(request.coefficients, request.mean, request.transform)
        shared, cells = self._shared(exact=exact)
        values = _at(request.transform, shared.reached)
        return {**_residuals(shared, request.mean, values), "patients": self.behind(cells)}

    def _values_of_times(self, request: messages.Transform, reached: NDArray[np.int64]) -> Floats:
        """Return the value of each patient's time in a test, shape (n,): of its place on the grid, or of itself."""
        if not request.recorded:
            return _at(request.transform, reached)
        if request.recorded not in RECORDED:
            raise ConfigurationError(
                f"recorded must be one of {', '.join(map(repr, RECORDED))}; got {request.recorded[:40]!r}",
                where="transform",
                hint="Start a new fit.",
            )
        relative = np.minimum(self.data.time, self.agreed.ends) / self.agreed.times[-1]
        values = relative if request.recorded == "identity" else np.log(np.maximum(relative, SMALLEST_RELATIVE))
        return np.asarray(values, dtype=np.float64)

    def _own_means(self, risk_sets: RiskSets, request: messages.At) -> tuple[Floats, RiskMeans]:
        theta, terms = own_terms(risk_sets, request)
        return theta, risk_means(risk_sets.events, risk_sets.sums(theta, ties_of(request.efron)), terms)


def _at(transform: Floats, reached: NDArray[np.int64]) -> Floats:
    """Return the value of each patient's time on the grid, shape (n,)."""
    check_values(transform)
    return np.asarray(transform[np.maximum(reached, 1) - 1], dtype=np.float64)


def _residuals(patients: RiskSets, mean: Floats, values: Floats) -> dict[str, Any]:
    plain, weighted = schoenfeld_sums(patients, mean, values)
    event_values, weights = values[patients.happened], patients.weights[patients.happened]
    return {
        "n_events": float(patients.events.sum()),
        "value": float(weights @ event_values),
        "squared_value": float(weights @ np.square(event_values)),
        "plain": plain,
        "weighted": weighted,
    }


def _check_surrogate(request: messages.Surrogate, n_events: float) -> None:
    """Raise ConfigurationError for derivatives that exceed those of all sites' events."""
    far = max(float(np.abs(each).max(initial=0.0)) for each in (request.gradient, request.information))
    if not (0.5 < request.n_events <= n_events + 0.5 and far <= messages.PRODUCTS):
        raise ConfigurationError(
            f"derivatives must rest on at most {n_events:g} events, with magnitudes up to {messages.PRODUCTS:g}; got "
            f"{request.n_events:g} events and {far:g}",
            where="request",
            hint="Start a new fit.",
        )


def check_values(values: Floats) -> None:
    """Raise ConfigurationError for values of times below 0 or above 1."""
    if values.min(initial=0.0) < 0.0 or values.max(initial=1.0) > 1.0:
        raise ConfigurationError(
            f"transform must lie between 0 and 1; got {values.min():g} to {values.max():g}",
            where="transform",
            hint="Start a new fit.",
        )


def check_alpha(alpha: float) -> None:
    """Raise ConfigurationError for a negative or infinite penalty."""
    if not 0.0 <= alpha < np.inf:
        raise ConfigurationError(
            f"alpha must be finite and non-negative; got {alpha:g}", where="alpha", hint="Start a new fit."
        )


def fit_own(risk_sets: RiskSets, alpha: float, ties: Ties) -> Maximum | None:
    """Return the maximum of a site's likelihood; None if there are too few events or it has no finite maximum."""
    if risk_sets.n_events.sum() < MIN_OWN:
        return None
    maximum = maximise(
        lambda tried: partial_likelihood(risk_sets, tried, ties), np.zeros(risk_sets.rows.shape[1]), alpha
    )
    return maximum if maximum.converged and np.isfinite(maximum.coefficients).all() else None


def own_terms(risk_sets: RiskSets, request: messages.At) -> tuple[Floats, Terms]:
    """Return hazard ratios, shape (n,), and the sums over terms of the site's risk sets."""
    theta, _ = hazard_ratios(risk_sets, request.coefficients)
    return theta, sum_terms(risk_sets.tables(theta, ties_of(request.efron)))


def hazards_of(patients: RiskSets, request: messages.AtShared) -> Floats:
    """Return weights times hazard ratios at the requested coefficients, divided by the requested factor, shape (n,).

    Raises
    ------
    ConfigurationError
        They are not finite.
    """
    with np.errstate(over="ignore"):
        theta = patients.weights * np.exp(patients.rows @ request.coefficients + patients.offset - request.shift)
    if not np.isfinite(theta).all():
        raise ConfigurationError(
            "hazard ratios must be finite; got infinite ones", where="shift", hint="Fit with alpha above 0."
        )
    return np.asarray(theta, dtype=np.float64)


def ties_of(efron: bool) -> Ties:
    """Return the name of the requested handling of ties."""
    return "efron" if efron else "breslow"
