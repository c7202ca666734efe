"""Federated Kaplan-Meier curves, via sums over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.published_counts import MIN_PUBLISHED, count_text, is_small, published
from multicentre.core.session import Answers
from multicentre.core.steps import Step, step
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Metric
from multicentre.estimator.figures import Curves as Drawn
from multicentre.estimator.figures import Figure
from multicentre.estimator.figures import Table as FigureTable
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.presentation import interval_text, number_text
from multicentre.estimator.site_estimates import SiteEstimates
from multicentre.survival.agreement.rounds import StatedTimes
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.curves.kaplan_meier.maths import Curves, Estimate, IntervalScale
from multicentre.survival.curves.kaplan_meier.site_estimates import median_estimates, survival_estimates
from multicentre.survival.curves.tables.estimator import (
    MAX_STATED,
    MIN_SHOWN,
    SEQUENCE,
    CompleteOnly,
    TableEstimator,
    band_of,
    chosen_times,
    counted_times,
    named,
    numbers_below,
    shown_times,
    stated_times,
    time_label,
)
from multicentre.survival.curves.tables.risk import RiskTable, read_curve
from multicentre.survival.curves.tables.rounds import Times, as_risks, asks_exactly, plain
from multicentre.survival.curves.tables.site import ByGroup, ExactTable, Table, TablePart

if TYPE_CHECKING:
    import pandas as pd


def show_curves(
    curves: Curves, unit: str, group: str | None, *, least: int = MIN_PUBLISHED, remark: str = ""
) -> list[Figure]:
    """Return the figure of the curves, and the table of medians, means and follow-up.

    Parameters
    ----------
    curves : Curves
    unit : str
        Unit of the times.
    group : str or None
        Column that defines the groups.
    least : int, default 5
        Smallest count that is stated.
    remark : str, optional
        Last sentences of the captions.
    """
    lower, upper = curves.limits
    table = curves.table
    bands = [
        band_of(named(group, name), table, place, (curves.survival[place], lower[place], upper[place]), start=1.0)
        for place, name in enumerate(curves.groups)
    ]
    positions = counted_times(table.grid, chosen_times(curves.horizon, unit), exact=table.exact)
    between = "" if table.exact else f" Curves are linear between the {len(table.grid)} times that were counted."
    figure = Drawn(
        "Survival (Kaplan-Meier)",
        f"Share of the patients without the event, over all sites, with {100 * curves.confidence_level:g} % intervals; "
        f"drawn while at least {MIN_SHOWN} patients are at risk, up to {number_text(curves.horizon)} {unit}".rstrip()
        + f". Numbers at risk are given below.{between} {remark}".rstrip(),
        "model",
        time_label(unit),
        "survival",
        bands,
        table.exact,
        positions,
        numbers_below(table, positions, group, least=least),
        curves.horizon,
    )
    return [figure, _summary(curves, unit, group, least, remark)]


def _summary(curves: Curves, unit: str, group: str | None, least: int, remark: str) -> FigureTable:
    means = curves.restricted_mean()
    events = curves.table.died.sum(axis=1).tolist()
    rows: list[list[str | float | None]] = [
        [
            named(group, name),
            count_text(curves.table.n_patients[place], least),
            count_text(events[place], least),
            _with_interval(curves.median[name]),
            _with_interval(means[name]),
            _with_interval(curves.follow_up[name]),
        ]
        for place, name in enumerate(curves.groups)
    ]
    return FigureTable(
        "Survival by group",
        f"Over all sites, in {unit or 'the unit of the data'}, with {100 * curves.confidence_level:g} % intervals. "
        f"The restricted mean is the mean time survived up to {number_text(curves.horizon)}; "
        f"follow-up is by the reverse Kaplan-Meier estimate. {remark}".rstrip(),
        "model",
        ["group", "patients", "events", "median", "restricted mean", "median follow-up"],
        rows,
    )


def _with_interval(estimate: Estimate) -> str:
    return f"{_number(estimate.value)} ({_number(estimate.lower)} to {_number(estimate.upper)})"


def _number(value: float) -> str:
    return "not reached" if np.isnan(value) else number_text(value)


class KaplanMeierSite(TablePart):
    """Site part of the survival curves; all other steps are inherited, see ``survival/curves/tables/site.py``."""

    method: ClassVar[str] = "kaplan-meier"
    revision: ClassVar[int] = 2

    @step(releases=Table, refusable=True)
    def tell_table(self, request: ByGroup) -> Table:
        """Return the counts of a single site by group, outcome and time.

        The answer describes a single site, so that an analyst can compare the sites. If the policy sets a minimum of
        patients, times are rounded up to public ones.
        """
        check_grid_is_coarse(self.agreed.times)
        return self.count(Table, request, rounded=self.least_behind > 1)

    @step(releases=ExactTable, refusable=True)
    def tell_exact_table(self, request: ByGroup) -> ExactTable:
        """Return the counts of a single site by recorded time; only with the policy's permission."""
        return self.count(ExactTable, request)


Floats = NDArray[np.float64]


class KaplanMeier(TableEstimator):
    """Kaplan-Meier curves over all sites, with intervals, numbers at risk, medians and restricted means.

    The sites agree on a grid of times and count their patients by group, outcome and place on the grid. The curves
    follow from the sums of these counts, however the patients are split over sites. With ``times="exact"`` the grid
    holds the times of all events, and the curves equal those of the pooled patients. On any other grid, events are
    located only between two times. Patients who leave between them count half at the later one, as in an actuarial life
    table, and curves are linear between times.

    Parameters
    ----------
    group : str, optional
        A column, or a category whose levels are columns ``name=level``; one curve each. One curve of all by default.
    levels : sequence of float, optional
        Values of the column that make groups, 0 and 1 by default.
    times : sequence of float or "exact", optional
        Times of the grid. By default `n_times` quantiles of the event times, the last one the horizon. ``"exact"``, or
        more than 256 times, require a policy with ``exact_times = true`` at every site.
    at : sequence of float, optional
        Times at which results are stated, in the tables of results and below figures; by default round ones. A grid of
        quantiles contains them.
    n_times : int, default 64
        Largest number of times of the grid, from 2 to 256.
    horizon : float, optional
        Last time, in the data's unit; by default the time by which 95 % of the follow-ups ended.
    confidence_level : float, default 0.95
        Confidence of the intervals.
    intervals : {"log-log", "log", "plain"}, default "log-log"
        Scale on which intervals are symmetric: log(-log S), log S or S. At S = 0 the limits of "log-log" are 0.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored; use AalenJohansen for competing
        risks.
    missing : {"complete"}, default "complete"
        Patients whose group is missing are left out; ``missing_`` counts them.

    Attributes
    ----------
    curves_ : Curves
        Curves, variances and limits by group.
    survival_, lower_, upper_ : array of shape (g, K)
        Survival of the g groups at the K times of the grid, and limits of its interval.
    cumulative_hazard_ : array of shape (g, K)
        Nelson-Aalen estimate.
    events_, at_risk_, censored_ : array of shape (g, K)
        Events, patients at risk, and patients censored since the time before.
    median_, follow_up_ : dict of str to Estimate
        Median survival, and median follow-up (reverse Kaplan-Meier), by group.
    rmst_ : dict of str to Estimate
        Mean time survived up to the horizon.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or the data have no column `group`.
    DataError
        No patient has an event, or a group has no patient at any site.
    RefusedByPolicy
        The grid has more than 256 or exact times, which a site's policy does not permit.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    References
    ----------
    .. [1] E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", Journal of the American
       Statistical Association 53 (1958), 457-481.

    Examples
    --------
    >>> import multicentre as mc
    >>> simulate = mc.datasets.simulate_survival
    >>> sites = {name: simulate(200, random_state=seed) for seed, name in enumerate(["lyon", "oslo"])}
    >>> model = mc.survival.KaplanMeier().fit(mc.Federation.in_process(sites))
    >>> model.survival_at([12.0, 24.0]).round(2).tolist()
    [[0.66, 0.47]]
    """

    site_part: ClassVar[type[TablePart]] = KaplanMeierSite
    model_phrases: ClassVar[Phrases] = {
        "intervals": {
            "log-log": "intervals on the scale log(-log S)",
            "log": "intervals on the scale log S",
            "plain": "intervals on the scale of S",
        },
        "at": "stated at {}",
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        **TableEstimator.parameter_ranges,
        "at": (None, SEQUENCE),
        "confidence_level": Real(0, 1, open="both"),
        "intervals": OneOf("log-log", "log", "plain"),
        "cause": Integer(1, 127),
    }
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
        at: Sequence[float] | None = None,
        n_times: int = 64,
        horizon: float | None = None,
        confidence_level: float = 0.95,
        intervals: IntervalScale = "log-log",
        cause: int = 1,
        missing: CompleteOnly = "complete",
    ) -> None:
        self.missing = missing
        self.group = group
        self.levels = plain(levels)
        self.times = plain(times)
        self.at = plain(at)
        self.n_times = n_times
        self.horizon = horizon
        self.confidence_level = confidence_level
        self.intervals = intervals
        self.cause = cause

    @property
    def _stated_times(self) -> StatedTimes:
        return stated_times(self.at)

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use, including curves by site."""
        return super().planned_steps() | {"tell_exact_table" if asks_exactly(self.times) else "tell_table"}

    def survival_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return survival at t given times, shape (g, t); NaN beyond the horizon."""
        check_is_fitted(self, "table_")
        return self.curves_.survival_at(times)

    def numbers_at_risk(self, times: Sequence[float] | Floats) -> Floats:
        """Return the numbers at risk at t given times, shape (g, t); see :meth:`RiskTable.count_at`."""
        check_is_fitted(self, "table_")
        return self.table_.count_at(np.asarray(times, dtype=np.float64))

    def restricted_mean(self, horizon: float | None = None) -> dict[str, Estimate]:
        """Return the mean time survived up to a horizon (by default that of the curves), by group."""
        check_is_fitted(self, "table_")
        return self.curves_.restricted_mean(horizon)

    def rmst_difference(self, first: str, second: str, horizon: float | None = None) -> Estimate:
        """Return the difference in restricted means, `first` minus `second`, with its interval."""
        check_is_fitted(self, "table_")
        return self.curves_.difference(first, second, horizon)

    def to_frame(self) -> pd.DataFrame:
        """Return times, numbers and curves as a frame with a row per group and time."""
        check_is_fitted(self, "table_")
        return self.curves_.to_frame()

    def summary(self) -> pd.DataFrame:
        """Return a row per group: patients, events, and median survival with the limits of its interval.

        A median that was not reached is NaN. The printed frame ends with sentences on missing values and on sites that
        were left out.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "table_")
        medians = [self.median_[name] for name in self.groups_]
        columns = {
            "patients": [published(n, self.least_published) for n in self.n_patients_.values()],
            "events": [published(n, self.least_published) for n in self.events_.sum(axis=1).tolist()],
            "median": [median.value for median in medians],
            "lower": [median.lower for median in medians],
            "upper": [median.upper for median in medians],
        }
        return with_note(
            pd.DataFrame(columns, index=pd.Index(self.groups_, name="group")),
            self._remarks(),
            model=self.describe_model(),
        )

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return medians and means, survival at chosen times, and, while enough patients are at risk, the curves.

        The curves are left out if the fit states so few times that the second table has all of them.
        """
        import pandas as pd

        check_is_fitted(self, "table_")
        medians = pd.DataFrame(self.summary())
        for label, estimates in (("restricted_mean", self.rmst_), ("follow_up", self.follow_up_)):
            medians[label] = [estimates[name].value for name in self.groups_]
        frame = self.to_frame()
        curves = frame.loc[frame["at_risk"] >= MIN_SHOWN, ["group", "time", "survival", "lower", "upper"]]
        tables = {"medians": medians, "survival-at-times": self._at_chosen_times()}
        return tables | ({"curves": curves} if len(self.times_) > MAX_STATED else {})

    def _at_chosen_times(self) -> pd.DataFrame:
        import pandas as pd

        times = np.array(shown_times(self.at, self.times, self.horizon_, self.agreed_.unit))
        columns = dict(zip(("survival", "lower", "upper"), (self.survival_, *self.curves_.limits), strict=True))
        curves = {
            name: read_curve(rows, self.table_, times, start=1.0, horizon=self.horizon_)
            for name, rows in columns.items()
        }
        at_risk = self.numbers_at_risk(times)
        blocks = []
        for place, group in enumerate(self.groups_):
            counts = np.where(is_small(at_risk[place], self.least_published), np.nan, at_risk[place])
            values = {name: rows[place] for name, rows in curves.items()}
            blocks.append(pd.DataFrame({"group": group, "time": times, "at_risk": counts, **values}))
        return pd.concat(blocks, ignore_index=True)

    def answer(self) -> str:
        """Return the median survival of each group with its interval; survival at the horizon if it is not reached."""
        check_is_fitted(self, "table_")
        medians = [self.median_[name] for name in self.groups_]
        if len(medians) > 2 and all(np.isfinite([one.value, one.lower, one.upper]).all() for one in medians):
            listed = "; ".join(f"{name} {_with_interval(self.median_[name])}" for name in self.groups_)
            unit = f" in {self.agreed_.unit}" if self.agreed_.unit else ""
            intervals = f"with {100 * self.confidence_level:g} % intervals"
            return self._stating_horizon(f"Median survival{unit} by {self.group}, {intervals}: {listed}.")
        return self._stating_horizon(" ".join(self._answer_of(*group) for group in enumerate(self.groups_)))

    def _answer_of(self, place: int, name: str) -> str:
        unit, of = self.agreed_.unit, "" if self.group is None else f" of {named(self.group, name)}"
        median = self.median_[name]
        if np.isfinite(median.value):
            lower, upper = median.lower, median.upper if np.isfinite(median.upper) else np.inf
            text = interval_text(median.value, lower, upper, self.confidence_level)
            text = text.replace("to inf", "to beyond the follow-up")
            return f"Median survival{of}: {text}{f' {unit}' if unit else ''}."
        value, lower, upper = (float(curve[place, -1]) for curve in (self.survival_, self.lower_, self.upper_))
        text = interval_text(value, lower, upper, self.confidence_level)
        return f"Median survival{of} was not reached; survival at {self.times_[-1]:.3g} {unit}".rstrip() + f": {text}."

    def main_figure(self) -> Figure:
        """Return the curves with numbers at risk."""
        return self.figures({}, {})[0]

    def by_site(self) -> Answers[Curves]:
        """Return the curves of each site of the last fit.

        Each answer describes a single site, so it leaves unmasked: the guard checks it, and the ledger records it. A
        site refuses a table in which a non-empty cell has fewer patients than its policy's `min_patients`. Its curves
        are NaN, and the attribute ``refused`` of the result holds its reason. The curves of a group without patients at
        the site are NaN too. A coarse grid (``times=[12.0, 24.0]``) gives large cells.
        """
        exact = asks_exactly(self.times)
        step: Step[Any, Any, Any] = KaplanMeierSite.tell_exact_table if exact else KaplanMeierSite.tell_table
        answers = self.session.ask(step, self._ask(), skip_refusals=True)
        curves = {site: self._curves(self._own_table(answers.get(site))) for site in self.session.sites}
        return Answers(curves, answers.refused)

    def survival_by_site(self, times: Sequence[float] | Floats) -> SiteEstimates:
        """Return survival of each site at given times on the scale ``log(-log S)``, for ``mc.analytics.combine``.

        It is requested as in :meth:`by_site`.
        """
        return survival_estimates(self.by_site(), times)

    def median_by_site(self) -> SiteEstimates:
        """Return the logarithm of each site's median survival, for ``mc.analytics.combine``.

        The standard errors are approximations from the lengths of the intervals. It is requested as in
        :meth:`by_site`.
        """
        return median_estimates(self.by_site())

    def assess(
        self,
        data: SurvivalData,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the distance of the curves from those of local patients, on the same grid and groups.

        Returns
        -------
        dict
            ``distance``, the largest difference at any time, in any group that the patients have.
        """
        check_is_fitted(self, "table_")
        local = self._curves(self._count(data))
        present = local.table.n_patients > 0
        return {"distance": float(np.abs(local.survival - self.survival_)[present].max(initial=0.0))}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the figure of the curves with numbers at risk below it, and the tables of medians and means."""
        check_is_fitted(self, "table_")
        unit, least, remark = self.agreed_.unit, self.least_published, self.coarsening_line_
        return show_curves(self.curves_, unit, self.group, least=least, remark=remark)

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
        """Return the table of one site; NaN if the site refused."""
        if answer is not None:
            return as_risks(answer, self._grid_at_sites, self.groups_, self.times)
        pooled = self.table_
        return replace(pooled, events=np.full_like(pooled.events, np.nan), leaving=np.full_like(pooled.leaving, np.nan))

    def _curves(self, table: RiskTable) -> Curves:
        return Curves(table, float(self.confidence_level), self.intervals, self.horizon_)
