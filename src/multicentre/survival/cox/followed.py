"""A site's patients at risk by time, and on how many of them a sum rests."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.cox import messages as sent
from multicentre.survival.kernels.cox import (
    LARGEST_COEFFICIENT,
    ROUNDING,
    Maximum,
    Terms,
    derive,
    effective_number,
    fewest_at_risk,
    hazard_ratios,
    is_dominated,
    maximise,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.times import to_bins

Floats = NDArray[np.float64]
FEWEST_OWN = 3
Followed = tuple[RiskSets, NDArray[np.int64]]


class CoxPatients(SurvivalPart):
    """Base of the site part: risk sets, kept between rounds, and checks of what is asked."""

    has_exact_steps: ClassVar[bool] = True

    @cached_property
    def _own(self) -> RiskSets:
        """The patients at their own times."""
        happened = self.data.event == self.agreed.cause
        return RiskSets.at_own_times(self.patients.standardised, self.data.time, happened)

    def _shared(self, *, exact: bool) -> Followed:
        """Return the patients at the times that all share, and of how many each sum by time consists.

        Raises
        ------
        ConfigurationError
            The times are those of a grid that is too fine.
        """
        if exact:
            return self._at_exact_times
        check_grid_is_coarse(self.agreed.times)
        return self._on_grid

    @cached_property
    def _on_grid(self) -> Followed:
        times = self.agreed.times
        happened = (self.data.event == self.agreed.cause) & (self.data.time <= times[-1])
        return self._followed(self._reached, happened)

    @cached_property
    def _own_on_grid(self) -> Followed:
        """The patients on the grid, where those count too whose event is after it, and the events by time."""
        check_grid_is_coarse(self.agreed.times)
        sets, _ = self._followed(self._reached, self._own.happened)
        return sets, sets.n_events.astype(np.int64)

    @cached_property
    def _at_exact_times(self) -> Followed:
        times, time = self.agreed.times, self.data.time
        reached = np.searchsorted(times, time, side="right")
        happened = (self.data.event == self.agreed.cause) & (time <= times[-1]) & (reached > 0)
        return self._followed(reached, happened)

    @property
    def _reached(self) -> NDArray[np.int64]:
        """Number of times of the grid at which each patient is at risk, at least 1, shape (n,)."""
        return np.minimum(to_bins(self.data.time, self.agreed.times), len(self.agreed.times) - 1) + 1

    def _followed(self, reached: NDArray[np.int64], happened: NDArray[np.bool_]) -> Followed:
        """Return risk sets, and how many patients each time holds: in all, with the event, and without."""
        cells = [np.bincount(reached[of]) for of in (reached >= 0, happened, ~happened)]
        return RiskSets(self.patients.standardised, reached, happened, len(self.agreed.times)), np.concatenate(cells)

    def _behind(self, own: RiskSets, ask: sent.At) -> int:
        """Return how many patients derivatives rest on in effect: the events, or fewer who make up the risk sets."""
        if self.masked:
            return self.behind()
        theta, terms = own_terms(own, ask)
        effective = self._effective(own.own_hazards(theta, terms.first, terms.first_tied))
        return min(self.behind(own.n_events.sum(keepdims=True)), effective)

    def _behind_times(self, shared: RiskSets, cells: NDArray[np.int64], theta: Floats) -> int:
        """Return how many patients sums by time rest on in effect: at each, those at risk; 1 where one outweighs all.

        Sums over those at risk differ from one time to the next by the patients of a time, with the event or without.
        """
        if self.masked:
            return self.behind()
        if is_dominated(2 * shared.reached + shared.happened, theta):
            return 1
        return self._whole(self.behind(cells), fewest_at_risk(shared, theta))

    def _behind_own_times(self, own: RiskSets, grid: RiskSets, cells: NDArray[np.int64], ask: sent.At) -> int:
        """Return the same for sums over own events by time of the grid, each less a mean over those at risk."""
        if self.masked:
            return self.behind()
        theta, terms = own_terms(own, ask)
        at = np.zeros(own.n_times, dtype=np.int64)
        at[own.reached[own.happened] - 1] = grid.reached[own.happened]
        for place in np.unique(at):
            here = at == place
            spent = own.own_hazards(theta, terms.first * here, terms.first_tied * here)
            if is_dominated(np.zeros(len(spent), dtype=np.int64), spent):
                return 1
        return min(self.behind(cells), self._behind(own, ask))

    def _effective(self, weights: Floats) -> int:
        """Return how many patients a sum with such weights rests on in effect."""
        return self.behind() if self.masked else self._whole(self.behind(), effective_number(weights))

    def _whole(self, most: int, number: float) -> int:
        return most if number >= most else int(number + ROUNDING)

    def _check(self, coefficients: Floats, *by_time: Floats) -> None:
        """Raise ConfigurationError for what is not of the agreed columns and times, or is far too steep."""
        agreed = self.agreed
        columns = (len(agreed.columns),)
        shaped = coefficients.shape == columns and all(
            each.shape[:1] == agreed.times.shape and each.shape[1:] in ((), columns) for each in by_time
        )
        if not (shaped and all(np.isfinite(each).all() for each in (coefficients, *by_time))):
            raise ConfigurationError("it is not of the agreed columns and times", where="ask", hint="Begin a new fit.")
        if np.abs(coefficients).max(initial=0.0) > LARGEST_COEFFICIENT:
            raise ConfigurationError(
                f"a coefficient is above {LARGEST_COEFFICIENT:g} a standard deviation",
                where="coefficients",
                hint="Fit with alpha above 0.",
            )


def check_values(values: Floats) -> None:
    """Raise ConfigurationError for values of times outside 0 to 1."""
    if values.min(initial=0.0) < 0.0 or values.max(initial=1.0) > 1.0:
        raise ConfigurationError("a time's value is not from 0 to 1", where="transform", hint="Begin a new fit.")


def check_alpha(alpha: float) -> None:
    """Raise ConfigurationError for a penalty that is none."""
    if not 0.0 <= alpha < np.inf:
        raise ConfigurationError("it is below 0 or without end", where="alpha", hint="Begin a new fit.")


def fit_own(own: RiskSets, alpha: float, ties: Ties) -> Maximum | None:
    """Return the maximum of a site's own likelihood, None where events are few or there is none."""
    if own.n_events.sum() < FEWEST_OWN:
        return None
    found = maximise(lambda tried: derive(own, tried, ties), np.zeros(own.rows.shape[1]), alpha)
    return found if found.converged and np.isfinite(found.coefficients).all() else None


def own_terms(own: RiskSets, ask: sent.At) -> tuple[Floats, Terms]:
    """Return hazard ratios, shape (n,), and the sums over terms of the patients' own risk sets."""
    theta, _ = hazard_ratios(own, ask.coefficients)
    return theta, sum_terms(own.tables(theta, ties_of(ask.efron)))


def hazards_of(patients: RiskSets, ask: sent.AtShared) -> Floats:
    """Return hazard ratios at what is asked, over a common factor, shape (n,).

    Raises
    ------
    ConfigurationError
        They are without end.
    """
    with np.errstate(over="ignore"):
        theta = np.exp(patients.rows @ ask.coefficients - ask.shift)
    if not np.isfinite(theta).all():
        raise ConfigurationError("hazard ratios have no end", where="shift", hint="Fit with alpha above 0.")
    return np.asarray(theta, dtype=np.float64)


def ties_of(efron: bool) -> Ties:
    """Return the name of the ties that is asked for."""
    return "efron" if efron else "breslow"
