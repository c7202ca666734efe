"""Kaplan-Meier curves of several sites' patients, by sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.missing.values import Missing
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Metric
from multicentre.estimator.figures import Figure
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Answers
from multicentre.federation.steps import Step, step
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.curves.kaplan_meier.figures import show_curves
from multicentre.survival.curves.kaplan_meier.maths import Curves, Estimate, Scale
from multicentre.survival.curves.tables.estimator import TableEstimator
from multicentre.survival.curves.tables.risk import RiskTable
from multicentre.survival.curves.tables.rounds import Times, as_risks, asks_exactly, plain
from multicentre.survival.curves.tables.site import ByGroup, ExactTable, Table, TablePart


class KaplanMeierSite(TablePart):
    """The site part of the survival curves."""

    method: ClassVar[str] = "kaplan-meier"

    @step(releases=Table, refusable=True)
    def tell_table(self, ask: ByGroup) -> Table:
        """Return the site's own counts by group, outcome and time.

        A sum over sites cannot show how one differs from the others. It is asked for when an analyst wants to know.
        Where the policy has a minimum of patients, times are rounded up to public ones.
        """
        check_grid_is_coarse(self.agreed.times)
        return self.count(Table, ask, rounded=self.least_behind > 1)

    @step(releases=ExactTable, refusable=True)
    def tell_exact_table(self, ask: ByGroup) -> ExactTable:
        """Tell the site's own counts by recorded time; only with the policy's permission."""
        return self.count(ExactTable, ask)


Floats = NDArray[np.float64]


class KaplanMeier(TableEstimator):
    """Survival curves over all sites, with intervals, numbers at risk, medians and restricted means.

    The sites agree on a grid of times and count their patients by group, outcome and place on it; the curves are those
    of the sums, the same however the patients are split. With ``times="exact"`` the grid holds every time of an event,
    and the curves are those of the pooled patients. On another grid events are known to lie between two times: who
    leaves between them counts half at the later one, as in an actuarial life table, and curves are straight lines from
    time to time.

    Parameters
    ----------
    group : str, optional
        A column, or a category whose levels are columns ``name=level``; one curve each. One curve of all by default.
    levels : sequence of float, optional
        Values of the column that make groups, 0 and 1 by default.
    times : sequence of float or "exact", optional
        The grid. By default `n_times` at quantiles of the events, the last at the horizon. ``"exact"``, or more than
        256 times, need a policy with ``exact_times = true`` at every site.
    n_times : int, default 64
        At most so many times, from 2 to 256.
    horizon : float, optional
        Last time, in the data's unit; by default the one by which 95 % of the follow-ups ended.
    confidence_level : float, default 0.95
        Confidence of the intervals.
    intervals : {"log-log", "log", "plain"}, default "log-log"
        Where they are symmetric: log(-log S), log S or S. At S = 0 those of "log-log" are 0.
    cause : int, default 1
        Which events count; those of other causes end the follow-up. Use AalenJohansen where causes compete.
    missing : {"complete"}, default "complete"
        Patients whose group is missing are left out; ``missing_`` counts them.

    Attributes
    ----------
    groups_ : tuple of str
        Names of the groups, g of them; ``("all",)`` without one.
    times_ : array of shape (K,)
    survival_, lower_, upper_ : array of shape (g, K)
        Survival at the times of the grid, and its limits.
    cumulative_hazard_ : array of shape (g, K)
        Nelson and Aalen's estimate.
    events_, at_risk_, censored_ : array of shape (g, K)
        Events, patients at risk of them, and those who left since the time before.
    median_, follow_up_ : dict of str to Estimate
        Median survival, and median follow-up (reverse Kaplan-Meier), by group.
    rmst_ : dict of str to Estimate
        Mean time survived up to the horizon.
    n_patients_ : dict of str to int
    n_left_out_ : int
        Patients who are in no group.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = {name: mc.datasets.simulate_survival(200, seed=seed) for seed, name in enumerate(["lyon", "oslo"])}
    >>> model = KaplanMeier().fit(mc.Federation.in_process(sites))
    >>> model.survival_at([12.0, 24.0]).round(2).tolist()
    [[0.66, 0.46]]

    References
    ----------
    .. [1] E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", Journal of the American
       Statistical Association 53 (1958), 457-481.
    """

    site_part: ClassVar[type[TablePart]] = KaplanMeierSite
    metrics: ClassVar[Mapping[str, Metric]] = {
        "distance": Metric(
            "largest difference", "lower", "", "largest difference from the curves of the patients given"
        )
    }

    def __init__(
        self,
        group: str | None = None,
        *,
        levels: Sequence[float] | None = None,
        times: Times = None,
        n_times: int = 64,
        horizon: float | None = None,
        confidence_level: float = 0.95,
        intervals: Scale = "log-log",
        cause: int = 1,
        missing: Missing = "complete",
    ) -> None:
        self.missing = missing
        self.group = group
        self.levels = plain(levels)
        self.times = plain(times)
        self.n_times = n_times
        self.horizon = horizon
        self.confidence_level = confidence_level
        self.intervals = intervals
        self.cause = cause

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask, its sites' own curves among them."""
        return super().asked_steps() | {"tell_exact_table" if asks_exactly(self.times) else "tell_table"}

    def survival_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return survival at given times, shape (g, t); NaN beyond the horizon."""
        return self.curves_.survival_at(times)

    def numbers_at_risk(self, times: Sequence[float] | Floats) -> Floats:
        """Return how many are known to be followed up to given times, shape (g, t); see :meth:`RiskTable.count_at`."""
        return self.table_.count_at(np.asarray(times, dtype=np.float64))

    def restricted_mean(self, horizon: float | None = None) -> dict[str, Estimate]:
        """Return the mean time survived up to a horizon (by default that of the curves), by group."""
        return self.curves_.restricted_mean(horizon)

    def rmst_difference(self, first: str, second: str, horizon: float | None = None) -> Estimate:
        """Return by how much the restricted mean of one group exceeds that of another, with its interval."""
        return self.curves_.difference(first, second, horizon)

    def to_frame(self) -> Any:
        """Return times, numbers and curves as a pandas frame, a row for each group and time."""
        import pandas as pd

        names = ("at_risk", "events", "censored", "survival", "lower", "upper")
        blocks = [
            pd.DataFrame(
                {"group": label, "time": self.times_, **{name: getattr(self, f"{name}_")[place] for name in names}}
            )
            for place, label in enumerate(self.groups_)
        ]
        return pd.concat(blocks, ignore_index=True)

    def by_site(self) -> Answers[Curves]:
        """Ask each site of the last fit for its own curves.

        Each is a site's own answer and no term of a sum, so it leaves unmasked: the guard checks it, and the ledger
        keeps it. A site refuses a table in which a cell that is not empty has fewer patients than its policy's
        `min_patients`; its curves are NaN, and the attribute ``refused`` of the result holds its reason. The curves of
        a group without patients at the site are NaN too. Few times (``times=[12.0, 24.0]``) make large cells.
        """
        exact = asks_exactly(self.times)
        step: Step[Any, Any, Any] = KaplanMeierSite.tell_exact_table if exact else KaplanMeierSite.tell_table
        answers = self.session.ask(step, self._ask(), skip_refusals=True)
        curves = {site: self._curves(self._own_table(answers.get(site))) for site in self.session.sites}
        return Answers(curves, answers.refused)

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
            ``distance``, the largest difference at any time, in any group that the patients have.
        """
        own = self._curves(self._count(data))
        here = own.table.n_patients > 0
        return {"distance": float(np.abs(own.survival - self.survival_)[here].max(initial=0.0))}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the figure of the curves with numbers at risk below it, and the tables of medians and means."""
        return show_curves(self.curves_, self.agreed_.unit, self.group)

    def _check(self) -> None:
        if not 0 < self.confidence_level < 1:
            raise ConfigurationError(
                f"{self.confidence_level!r} is not between 0 and 1", where="confidence_level", hint="Give 0.95, say."
            )
        if self.intervals not in ("log-log", "log", "plain"):
            raise ConfigurationError(
                f"{self.intervals!r} is not known", where="intervals", hint='Take "log-log", "log" or "plain".'
            )

    def _causes(self) -> tuple[int, ...]:
        return (self.cause,)

    def _show(self, table: RiskTable) -> None:
        curves = self._curves(table)
        self.curves_ = curves
        self.survival_, self.cumulative_hazard_ = curves.survival, curves.cumulative_hazard
        self.lower_, self.upper_ = curves.limits
        self.events_, self.at_risk_, self.censored_ = table.died, table.at_risk, table.censored
        self.median_, self.follow_up_ = curves.median, curves.follow_up
        self.rmst_ = curves.restricted_mean()

    def _own_table(self, answer: Table | None) -> RiskTable:
        """Return the table of one site, of NaN where it refused."""
        if answer is not None:
            return as_risks(answer, self.agreed_, self.groups_, self.times)
        pooled = self.table_
        return replace(pooled, events=np.full_like(pooled.events, np.nan), leaving=np.full_like(pooled.leaving, np.nan))

    def _curves(self, table: RiskTable) -> Curves:
        return Curves(table, float(self.confidence_level), self.intervals, self.horizon_)
