"""A site's patients as the Cox model follows them, and on how many of them a sum rests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.maths.grouping import join_times
from multicentre.survival.kernels.cox import LARGEST_COEFFICIENT, hazard_ratios, sum_terms
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.times.grid import to_bins

Floats = NDArray[np.float64]
ROUNDING = 1e-6
Followed = tuple[RiskSets, NDArray[np.int64]]


class CoxPatients(SurvivalPart):
    """Base of the site part: risk sets, kept between rounds, and checks of what is asked."""

    _rows: Floats | None = None
    _sets: dict[str, Followed] | None = None

    def _own(self) -> RiskSets:
        """Return the patients at their own times; none has the event where few have and sums are not masked."""
        happened = self.data.event == self.agreed.cause
        enough = self.masked or int(happened.sum()) >= self.least_behind

        def make() -> Followed:
            return RiskSets.at_own_times(self._standardised(), self.data.time, happened & enough), np.zeros(0, np.int64)

        return self._kept(f"own {enough}", make)[0]

    def _shared(self, *, exact: bool) -> Followed:
        """Return the patients at the times that all share, and of how many each sum by time consists."""
        least = 0 if exact or self.masked else self.least_behind
        return self._kept(f"shared {exact} {least}", lambda: self._at_shared_times(least, exact=exact))

    def _at_shared_times(self, least: int, *, exact: bool) -> Followed:
        times, time = self.agreed.times, self.data.time
        happened = (self.data.event == self.agreed.cause) & (time <= times[-1])
        reached = np.searchsorted(times, time, side="right")
        if not exact:
            joined = join_times(to_bins(time, times), happened, len(times), least)
            return RiskSets(self._standardised(), joined.reached, joined.happened, len(times)), joined.cells
        sets = RiskSets(self._standardised(), reached, happened & (reached > 0), len(times))
        left = np.bincount(reached, minlength=len(times) + 1)
        counts = np.concatenate([sets.n_events, left, left[1:] - sets.n_events])
        return sets, counts[counts > 0].astype(np.int64)

    def _kept(self, name: str, make: Callable[[], Followed]) -> Followed:
        self._sets = self._sets or {}
        if name not in self._sets:
            self._sets[name] = make()
        return self._sets[name]

    def _standardised(self) -> Floats:
        if self._rows is None:
            # Not `self.patients`, which would keep the columns twice.
            rows = Patients(self.data, self.agreed, 0 if self.agreed.masked else self.least_behind).rows
            rows -= self.agreed.centre
            rows /= self.agreed.spread
            self._rows = rows
        return self._rows

    def _behind(self, own: RiskSets, ask: sent.At) -> int:
        """Return how many patients derivatives rest on in effect: the events, or fewer who make up the risk sets."""
        if self.masked:
            return self.behind()
        theta, _ = hazard_ratios(own, ask.coefficients)
        terms = sum_terms(own.tables(theta, ties_of(ask.efron)))
        effective = self._effective(own.own_hazards(theta, terms.first, terms.first_tied))
        return min(self.behind(own.n_events.sum(keepdims=True)), effective)

    def _effective(self, weights: Floats) -> int:
        """Return how many patients a sum with such weights rests on in effect, (sum w)^2 / sum w^2 (Kish, 1965)."""
        largest = float(np.abs(weights).max(initial=0.0))
        if self.masked or not largest:
            return self.behind()
        shares = weights / largest
        return min(self.behind(), int(shares.sum() ** 2 / (shares @ shares) + ROUNDING))

    def _check(self, coefficients: Floats, *by_time: Floats) -> None:
        """Raise ConfigurationError for what is not of the agreed columns and times, or is far too steep."""
        agreed = self.agreed
        fits = len(coefficients) == len(agreed.columns) and all(len(each) == len(agreed.times) for each in by_time)
        if not fits:
            raise ConfigurationError("it is not of the agreed columns and times", where="ask", mend="Begin a new fit.")
        if np.abs(coefficients).max(initial=0.0) > LARGEST_COEFFICIENT:
            raise ConfigurationError(
                f"a coefficient is above {LARGEST_COEFFICIENT:g} a standard deviation",
                where="coefficients",
                mend="Fit with a ridge.",
            )


def hazards_of(patients: RiskSets, ask: sent.AtShared) -> Floats:
    """Return hazard ratios at what is asked, over a common factor, shape (n,)."""
    return np.asarray(np.exp(patients.rows @ ask.coefficients - ask.shift), dtype=np.float64)


def ties_of(efron: bool) -> Ties:
    """Return the name of the ties that is asked for."""
    return "efron" if efron else "breslow"
