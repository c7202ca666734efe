"""Cumulative incidence of competing causes over several sites, by sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from multicentre.data.missing.values import Missing
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Figure
from multicentre.estimator.figures import Curves, Exhibit
from multicentre.federation.errors import ConfigurationError
from multicentre.survival.curves.aalen_johansen import maths
from multicentre.survival.curves.aalen_johansen.site import AalenJohansenSite
from multicentre.survival.curves.tables.estimator import TableEstimator
from multicentre.survival.curves.tables.risk import RiskTable, read_curve
from multicentre.survival.curves.tables.rounds import Times, plain
from multicentre.survival.curves.tables.showing import (
    LEAST_SHOWN,
    band_of,
    chosen_times,
    named,
    numbers_below,
    time_label,
)
from multicentre.survival.curves.tables.site import TablePart
from multicentre.survival.times.curves import hazard

Floats = NDArray[np.float64]


class AalenJohansen(TableEstimator):
    """Cumulative incidence of each of several causes, where the event of one keeps the others from happening.

    Rounds, grid and groups are those of :class:`KaplanMeier`; patients are counted by cause too. The grid is that of
    the events of any cause. Which cause a patient's event had is in ``SurvivalData.event``: 1, 2, 3, ...

    Parameters
    ----------
    group : str, optional
        A column, or a category whose levels are columns ``name=level``.
    causes : sequence of int, default (1, 2)
        Causes that are told apart; those that are not named end the follow-up.
    levels : sequence of float, optional
        Values of the column that make groups, 0 and 1 by default.
    times : sequence of float or "exact", optional
        The grid, as for :class:`KaplanMeier`.
    n_times : int, default 64
    horizon : float, optional
    level : float, default 0.95
        Confidence of the intervals, symmetric in log(-log F).
    variance : {"delta", "aalen"}, default "delta"
        By Dinse and Larson's equation 6, or by Aalen's estimator.
    missing : {"complete"}, default "complete"
        Patients whose group is missing are left out; ``missing_`` counts them.

    Attributes
    ----------
    groups_ : tuple of str
        Names of the groups, g of them.
    times_ : array of shape (K,)
    incidence_, lower_, upper_, variance_ : array of shape (g, c, K)
        Incidence of each cause up to each time, its limits and its variance.
    cumulative_hazard_ : array of shape (g, c, K)
        Nelson and Aalen's estimate, cause by cause.
    survival_ : array of shape (g, K)
        Share without an event of any of the causes.
    events_ : array of shape (g, c, K)
    at_risk_ : array of shape (g, K)
    n_left_out_ : int
        Patients who are in no group.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = {name: mc.datasets.simulate_survival(200, seed=seed, competing=True) for seed, name in enumerate("ab")}
    >>> model = AalenJohansen().fit(mc.Federation.in_process(sites))
    >>> model.incidence_at([12.0, 24.0]).round(2).tolist()
    [[[0.3, 0.41], [0.16, 0.24]]]

    References
    ----------
    .. [1] O. O. Aalen, S. Johansen, "An empirical transition matrix for non-homogeneous Markov chains based on censored
       observations", Scandinavian Journal of Statistics 5 (1978), 141-150.
    """

    site_part: ClassVar[type[TablePart]] = AalenJohansenSite
    figures: ClassVar[Mapping[str, Figure]] = {
        "distance": Figure(
            "largest difference", "lower", "", "largest difference from the curves of the patients given"
        )
    }

    def __init__(
        self,
        group: str | None = None,
        *,
        causes: Sequence[int] = (1, 2),
        levels: Sequence[float] | None = None,
        times: Times = None,
        n_times: int = 64,
        horizon: float | None = None,
        level: float = 0.95,
        variance: maths.Variance = "delta",
        missing: Missing = "complete",
    ) -> None:
        self.missing = missing
        self.group = group
        self.causes = causes
        self.levels = plain(levels)
        self.times = plain(times)
        self.n_times = n_times
        self.horizon = horizon
        self.level = level
        self.variance = variance

    def incidence_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return the incidence at given times, shape (g, c, t); NaN beyond the horizon."""
        return read_curve(self.incidence_, self.table_, times, start=0.0, horizon=self.horizon_)

    def assess(
        self,
        data: SurvivalData,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return how far the curves are from those of patients that the caller holds, on the same grid and groups.

        Returns
        -------
        dict
            ``distance``, the largest difference at any time, for any cause, in any group that the patients have.
        """
        table = self._count(data)
        here = table.n_patients > 0
        return {"distance": float(np.abs(_incidence(table) - self.incidence_)[here].max(initial=0.0))}

    def exhibits(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Exhibit]:
        """Return the figure of the incidences, with numbers at risk below it."""
        table, positions = self.table_, chosen_times(self.horizon_)
        bands = [
            band_of(
                self._name(label, cause),
                table,
                place,
                (self.incidence_[place, number], self.lower_[place, number], self.upper_[place, number]),
                start=0.0,
            )
            for place, label in enumerate(self.groups_)
            for number, cause in enumerate(self._causes())
        ]
        figure = Curves(
            "Cumulative incidence (Aalen-Johansen)",
            f"Share of the patients with an event of each cause, over all sites, with {100 * self.level:g} % "
            f"intervals; drawn while at least {LEAST_SHOWN} patients are at risk. Numbers at risk stand below.",
            "model",
            time_label(self.agreed_.unit),
            "cumulative incidence",
            bands,
            table.exact,
            positions,
            numbers_below(table, positions, self.group),
        )
        return [figure]

    def _name(self, label: str, cause: int) -> str:
        return f"cause {cause}" if self.group is None else f"{named(self.group, label)}, cause {cause}"

    def _check(self) -> None:
        if not 0 < self.level < 1:
            raise ConfigurationError(f"{self.level!r} is not between 0 and 1", where="level", mend="Give 0.95, say.")
        if self.variance not in ("delta", "aalen"):
            raise ConfigurationError(
                f"{self.variance!r} is not known", where="variance", mend='Take "delta" or "aalen".'
            )

    def _first_cause(self) -> int:
        return 1

    def _causes(self) -> tuple[int, ...]:
        return tuple(int(cause) for cause in self.causes)

    def _show(self, table: RiskTable) -> None:
        quantile = float(norm.isf((1.0 - self.level) / 2.0))
        rows = list(zip(table.events, table.at_risk, strict=True))
        self.events_, self.at_risk_ = table.events, table.at_risk
        self.incidence_ = _incidence(table)
        self.variance_ = np.array([maths.incidence_variance(*row, self.variance) for row in rows])
        self.lower_, self.upper_ = maths.incidence_interval(self.incidence_, self.variance_, quantile)
        self.cumulative_hazard_ = np.array(
            [np.cumsum([hazard(cause, at_risk) for cause in events], axis=1) for events, at_risk in rows]
        )
        self.survival_ = 1.0 - self.incidence_.sum(axis=1)


def _incidence(table: RiskTable) -> Floats:
    rows = zip(table.events, table.at_risk, strict=True)
    return np.array([maths.cumulative_incidence(*row)[0] for row in rows])
