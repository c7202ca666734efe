"""Sums of all sites at some coefficients: the log partial likelihood and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Message, array, number
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.kernels.cox import Likelihood, gradient, squared_means, sum_terms
from multicentre.survival.kernels.risk_sets import Sums, Tables, Ties

Floats = NDArray[np.float64]
Times = Literal["stratified", "grid", "exact"]


@dataclass(frozen=True)
class Plan:
    """What the rounds need of the estimator's parameters."""

    times: Times
    ties: Ties
    ridge: float
    max_rounds: int
    tol: float


@dataclass(frozen=True)
class Totals(Message):
    """Sums over the sites at some coefficients; those by time are empty where baselines are the sites' own."""

    n_patients: float = number("patients")
    n_events: float = number("events")
    shift: float = number("logarithm by which hazard ratios were divided")
    value: float = number("log partial likelihood")
    gradient: Floats = array("its first derivatives", ("d",))
    information: Floats = array("minus its second derivatives", ("d", "d"))
    events: Floats = array("events by time", ("K",))
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",))
    risk_sum: Floats = array("the same times columns", ("K", "d"))
    tied: Floats = array("sum of hazard ratios over those with the event", ("K",))
    tied_sum: Floats = array("the same times columns", ("K", "d"))

    @property
    def tables(self) -> Tables:
        """The sums by time."""
        return Tables(self.events, self.events, self.risk, self.tied)

    @property
    def sums(self) -> Sums:
        """The sums of columns by time."""
        return Sums(self.risk_sum, self.tied_sum)

    @property
    def likelihood(self) -> Likelihood:
        """Value and derivatives."""
        return Likelihood(self.value, self.gradient, self.information)


def add_up(federation: Federation, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    """Return the sums of all sites at some coefficients; anew where a site was lost between two of them."""
    if plan.times == "stratified":
        return _own_totals(federation.sum(CoxSite.sum_derivatives, sent.At(coefficients, plan.ties == "efron")))
    while True:
        sites = federation.sites
        found = _shared_totals(federation, coefficients, shift, plan)
        if federation.sites == sites:
            return found


def _own_totals(sums: sent.Derivatives) -> Totals:
    none, no_rows = np.zeros(0), np.zeros((0, len(sums.gradient)))
    by_time = none, none, no_rows, none, no_rows
    return Totals(sums.n_patients, sums.n_events, 0.0, sums.log_likelihood, sums.gradient, sums.information, *by_time)


def _shared_totals(federation: Federation, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    exact, efron = plan.times == "exact", plan.ties == "efron"
    at = sent.AtShared(coefficients, efron, shift)
    sums = federation.sum(CoxSite.sum_exact_risk, at) if exact else federation.sum(CoxSite.sum_risk, at)
    nothing = np.zeros(len(sums.risk)), np.zeros_like(sums.risk_sum)
    tied = (sums.tied, sums.tied_sum) if efron else nothing
    terms = sum_terms(Tables(sums.events, sums.events, sums.risk, tied[0]))
    ask = sent.Hazards(coefficients, efron, shift, terms.first, terms.first_tied)
    summed = federation.sum(CoxSite.sum_exact_products, ask) if exact else federation.sum(CoxSite.sum_products, ask)
    products = summed.products
    n_events = float(sums.events.sum())
    value = float(sums.event_sum @ coefficients - terms.log.sum() - shift * n_events)
    return Totals(
        sums.n_patients,
        n_events,
        shift,
        value,
        gradient(sums.event_sum, Sums(sums.risk_sum, tied[1]), terms),
        products - squared_means(Sums(sums.risk_sum, tied[1]), terms),
        sums.events,
        sums.risk,
        sums.risk_sum,
        *tied,
    )
