"""A site's patients as the Cox model follows them, and on how many of them a sum rests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.maths.effective import ROUNDING, effective_number, fewest_at_risk, is_dominated
from multicentre.survival.cox.maths.grouping import Grouping, join_times
from multicentre.survival.kernels.cox import (
    LARGEST_COEFFICIENT,
    Maximum,
    Terms,
    derive,
    hazard_ratios,
    maximise,
    newton_step,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.times.grid import to_bins

Floats = NDArray[np.float64]
FEWEST_OWN = 3
WITHOUT_FIT = 3
OWN_RIDGE = 1.0
Followed = tuple[RiskSets, NDArray[np.int64]]


class CoxPatients(SurvivalPart):
    """Base of the site part: risk sets, kept between rounds, and checks of what is asked."""

    _rows: dict[int, Floats] | None = None
    _sets: dict[str, Followed] | None = None

    @property
    def _least(self) -> int:
        """How many patients must stand behind what the present answer shows of them: 0 under a mask."""
        return 0 if self.masked else self.least_behind

    def _own(self) -> RiskSets:
        """Return the patients at their own times; none has the event where few have and sums are not masked."""
        return self._kept("own", self._at_own_times)[0]

    def _shared(self, *, exact: bool) -> Followed:
        """Return the patients at the times that all share, and of how many each sum by time consists.

        Raises
        ------
        ConfigurationError
            The times are those of a grid that is too fine.
        DisclosureRefused
            They are exact, and sums neither masked nor allowed of any number of patients.
        """
        if not exact:
            check_grid_is_coarse(self.agreed.times)
            return self._kept("grid", self._on_grid)
        shared, cells = self._kept("exact", self._at_exact_times)
        if self.behind(cells) < self.least_behind:
            raise DisclosureRefused(
                f"fewer than {self.least_behind} patients stand behind sums at exact times",
                where="times",
                mend='Ask for masked sums (secure_sum=True), or fit with times="stratified", which needs no times.',
            )
        return shared, cells

    def _own_on_grid(self, own: RiskSets) -> Followed:
        """Return the patients on the grid, where those count too whose event is after it, and the events by time."""
        check_grid_is_coarse(self.agreed.times)

        def make() -> Followed:
            joined = self._joined_times(own.happened)
            sets = RiskSets(own.rows, joined.reached, joined.happened, len(self.agreed.times))
            return sets, sets.n_events.astype(np.int64)

        return self._kept("own on grid", make)

    def _at_own_times(self) -> Followed:
        happened = self.data.event == self.agreed.cause
        enough = int(happened.sum()) >= self._least
        return RiskSets.at_own_times(self._standardised(), self.data.time, happened & enough), np.zeros(0, np.int64)

    def _on_grid(self) -> Followed:
        times = self.agreed.times
        joined = self._joined_times((self.data.event == self.agreed.cause) & (self.data.time <= times[-1]))
        return RiskSets(self._standardised(), joined.reached, joined.happened, len(times)), joined.cells

    def _joined_times(self, happened: NDArray[np.bool_]) -> Grouping:
        """Return the patients by time of the grid, joined as hazard ratios need at the site's own first step and fit.

        What is joined follows from the site's data, never from what is asked: two answers that are joined differently
        could be compared.
        """
        own, times = self._own(), self.agreed.times
        bins, least = to_bins(self.data.time, times), self._least
        if least <= 1:
            return join_times(bins, happened, len(times), least)
        found = fit_own(own, OWN_RIDGE, "breslow")
        if found is None:
            return join_times(bins, happened, len(times), WITHOUT_FIT * least)
        nowhere = np.zeros_like(found.coefficients)
        first = newton_step(derive(own, nowhere, "breslow"), nowhere, OWN_RIDGE)
        weights = [hazard_ratios(own, coefficients)[0] for coefficients in (first, found.coefficients)]
        return join_times(bins, happened, len(times), least, np.stack(weights, axis=1))

    def _at_exact_times(self) -> Followed:
        times, time = self.agreed.times, self.data.time
        reached = np.searchsorted(times, time, side="right")
        happened = (self.data.event == self.agreed.cause) & (time <= times[-1]) & (reached > 0)
        sets = RiskSets(self._standardised(), reached, happened, len(times))
        left = np.bincount(reached, minlength=len(times) + 1)
        counts = np.concatenate([sets.n_events, left, left[1:] - sets.n_events])
        return sets, counts[counts > 0].astype(np.int64)

    def _kept(self, name: str, make: Callable[[], Followed]) -> Followed:
        """Return what was made under this name; what an answer in clear rests on is never what a masked one made."""
        self._sets = self._sets or {}
        key = f"{name} {self._least}"
        if key not in self._sets:
            self._sets[key] = make()
        return self._sets[key]

    def _standardised(self) -> Floats:
        self._rows = self._rows or {}
        if self._least not in self._rows:
            # Not `self.patients`, which would keep the columns twice.
            rows = Patients(self.data, self.agreed, self._least).rows
            rows -= self.agreed.centre
            rows /= self.agreed.spread
            self._rows[self._least] = rows
        return self._rows[self._least]

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
            raise ConfigurationError("it is not of the agreed columns and times", where="ask", mend="Begin a new fit.")
        if np.abs(coefficients).max(initial=0.0) > LARGEST_COEFFICIENT:
            raise ConfigurationError(
                f"a coefficient is above {LARGEST_COEFFICIENT:g} a standard deviation",
                where="coefficients",
                mend="Fit with a ridge.",
            )


def check_values(values: Floats) -> None:
    """Raise ConfigurationError for values of times outside 0 to 1."""
    if values.min(initial=0.0) < 0.0 or values.max(initial=1.0) > 1.0:
        raise ConfigurationError("a time's value is not from 0 to 1", where="transform", mend="Begin a new fit.")


def check_ridge(ridge: float) -> None:
    """Raise ConfigurationError for a ridge that is none."""
    if not 0.0 <= ridge < np.inf:
        raise ConfigurationError("it is below 0 or without end", where="ridge", mend="Begin a new fit.")


def fit_own(own: RiskSets, ridge: float, ties: Ties) -> Maximum | None:
    """Return the maximum of a site's own likelihood, None where events are few or there is none."""
    if own.n_events.sum() < FEWEST_OWN:
        return None
    found = maximise(lambda tried: derive(own, tried, ties), np.zeros(own.rows.shape[1]), ridge)
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
        raise ConfigurationError("hazard ratios have no end", where="shift", mend="Fit with a ridge.")
    return np.asarray(theta, dtype=np.float64)


def ties_of(efron: bool) -> Ties:
    """Return the name of the ties that is asked for."""
    return "efron" if efron else "breslow"
