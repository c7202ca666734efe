"""Log-rank tests over several sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import array, number, text
from multicentre.core.published_counts import MIN_PUBLISHED, count_text, is_small, published
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.figures import Bars, Figure, Table
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Applicable, Flag, Integer, OneOf, Only, ParameterRanges, Real
from multicentre.estimator.presentation import number_text, p_text
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.survival.agreement.messages import LARGEST
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.curves.tables.estimator import COLUMN, CompleteOnly, TableEstimator, named
from multicentre.survival.curves.tables.groups import find_members
from multicentre.survival.curves.tables.risk import RiskTable, count_table
from multicentre.survival.curves.tables.rounds import Times, plain
from multicentre.survival.curves.tables.site import PATIENTS, ByGroup, TablePart
from multicentre.survival.times import by_end

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

Weights = Literal["logrank", "wilcoxon", "tarone-ware", "fleming-harrington"]

WEIGHTS: tuple[str, ...] = get_args(Weights)

# Variance, relative to the largest one, below which a group counts as never at risk.
ROUNDING = 1e-9


def weigh_times(
    events: Floats, at_risk: Floats, kind: str, *, rho: float = 1.0, gamma: float = 0.0, scale: float = 1.0
) -> Floats:
    """Return the weight of every time, shape (K,).

    The weight is 1 ("logrank"), n / scale ("wilcoxon": Gehan and Breslow), its square root ("tarone-ware"), or S^rho (1
    - S)^gamma with the pooled Kaplan-Meier estimate S before the time ("fleming-harrington"). The test does not depend
    on the scale.

    Parameters
    ----------
    events, at_risk : array of shape (g, K)
    kind : {"logrank", "wilcoxon", "tarone-ware", "fleming-harrington"}
    rho, gamma : float
        At least 0.
    scale : float
        Number of patients, so that weights are at most 1.

    Examples
    --------
    >>> events, at_risk = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0, 1.0], [2.0, 2.0]])
    >>> weigh_times(events, at_risk, "wilcoxon", scale=4.0).tolist()
    [1.0, 0.75]
    >>> weigh_times(events, at_risk, "fleming-harrington").tolist()
    [1.0, 0.75]
    """
    died, n = events.sum(axis=0), at_risk.sum(axis=0)
    if kind == "logrank":
        return np.ones_like(n)
    if kind == "wilcoxon":
        return np.asarray(n / scale, dtype=np.float64)
    if kind == "tarone-ware":
        return np.asarray(np.sqrt(n / scale), dtype=np.float64)
    steps = 1.0 - np.divide(died, n, out=np.zeros_like(n), where=n > 0)
    before = np.concatenate([[1.0], np.cumprod(steps)])[:-1]
    return np.asarray(before**rho * (1.0 - before) ** gamma, dtype=np.float64)


def compare_groups(events: Floats, at_risk: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return weighted observed minus expected events, shape (g,), and their covariance, shape (g, g).

    Given the margins of each time's table, events are hypergeometric: Mantel, Cancer Chemotherapy Reports 50 (1966).

    Parameters
    ----------
    events, at_risk : array of shape (g, K)
    weights : array of shape (K,)

    Examples
    --------
    >>> score, covariance = compare_groups(np.array([[1.0], [0.0]]), np.array([[2.0], [2.0]]), np.ones(1))
    >>> score.tolist(), covariance.tolist()
    ([0.5, -0.5], [[0.25, -0.25], [-0.25, 0.25]])
    """
    died, n = events.sum(axis=0), at_risk.sum(axis=0)
    shares = np.divide(at_risk, n, out=np.zeros_like(at_risk), where=n > 0)
    score = ((events - shares * died) * weights).sum(axis=1)
    spread = np.divide(died * (n - died), n - 1.0, out=np.zeros_like(n), where=n > 1.0) * weights**2
    return score, np.diag((shares * spread).sum(axis=1)) - (shares * spread) @ shares.T


def expected_events(events: Floats, at_risk: Floats) -> Floats:
    """Return the expected number of events of each group under equal survival, shape (g,).

    Examples
    --------
    >>> expected_events(np.array([[1.0], [0.0]]), np.array([[2.0], [2.0]])).tolist()
    [0.5, 0.5]
    """
    n = at_risk.sum(axis=0)
    shares = np.divide(at_risk, n, out=np.zeros_like(at_risk), where=n > 0)
    return np.asarray(shares @ events.sum(axis=0), dtype=np.float64)


def chi_square(score: Floats, covariance: Floats) -> tuple[float, int, float]:
    """Return the statistic, its degrees of freedom and the p-value; groups that were never at risk are left out.

    Parameters
    ----------
    score : array of shape (g,)
    covariance : array of shape (g, g)

    Examples
    --------
    >>> statistic, freedom, p_value = chi_square(np.array([3.0, -3.0]), np.array([[2.0, -2.0], [-2.0, 2.0]]))
    >>> statistic, freedom, round(p_value, 4)
    (4.5, 1, 0.0339)
    """
    spread = np.diag(covariance)
    present = np.flatnonzero(spread > ROUNDING * max(1.0, float(spread.max(initial=0.0))))
    if len(present) < 2:
        return float("nan"), 0, float("nan")
    chosen = present[:-1]
    statistic = float(score[chosen] @ np.linalg.solve(covariance[np.ix_(chosen, chosen)], score[chosen]))
    freedom = len(chosen)
    return statistic, freedom, float(chi2.sf(statistic, freedom))


@dataclass(frozen=True)
class Compared(ByGroup):
    """Groups to compare, and weights of the times."""

    weights: str = text("name of the weights of the times")
    rho: float = number("power of survival, for Fleming-Harrington weights")
    gamma: float = number("power of 1 minus survival, for Fleming-Harrington weights")


@dataclass(frozen=True)
class Scores(Release):
    """Sums of a site for a stratified test; they contain no times."""

    n_patients: float = number("patients, including those left out", unit="patients", bound=PATIENTS)
    sizes: Floats = array("patients by group", ("g",), unit="patients", bound=PATIENTS)
    observed: Floats = array("events by group", ("g",), unit="patients", bound=PATIENTS)
    expected: Floats = array("events by group expected under equal survival", ("g",), bound=PATIENTS)
    score: Floats = array(
        "weighted observed minus expected events by group, over the site's times", ("g",), bound=PATIENTS
    )
    covariance: Floats = array("covariance of observed minus expected events", ("g", "g"), bound=PATIENTS)


# Largest power of Fleming-Harrington weights.
MAX_POWER = 10.0


class LogRankSite(TablePart):
    """Site part of the log-rank test; all other steps are inherited, see ``survival/curves/tables/site.py``."""

    method: ClassVar[str] = "log-rank"
    revision: ClassVar[int] = 2

    @step(releases=Scores, when="once", summed=True)
    def sum_scores(self, request: Compared) -> Scores:
        """Sum observed minus expected events over the site's times, and their covariance."""
        _check(request)
        self.settle_on(request)
        n_groups = max(1, len(request.columns))
        group = find_members(self.data.X, self.data.columns, request.columns, request.levels, self.data.levels)
        happened = (group >= 0) & (self.outcomes == request.causes[0]) & by_end(self.data.time, self.agreed.times[-1])
        sizes = np.bincount(group[group >= 0], minlength=n_groups)
        grid = np.unique(self.data.time[happened])
        events, leaving = count_table(self.data.time, self.outcomes, group, grid, request.causes, n_groups)
        table = RiskTable(("",) * n_groups, grid, events.astype(float), leaving.astype(float), exact=True)
        weights = weigh_times(
            table.died,
            table.at_risk,
            request.weights,
            rho=request.rho,
            gamma=request.gamma,
            scale=self.agreed.n_patients,
        )
        score, covariance = compare_groups(table.died, table.at_risk, weights)
        observed = table.died.sum(axis=1)
        behind = self.n_contributing(len(self.data), sizes, np.count_nonzero(group < 0), observed)
        expected = expected_events(table.died, table.at_risk)
        by_group = sizes.astype(float), observed, expected
        return Scores(float(len(self.data)), *by_group, score, covariance, patients=behind)


def _check(request: Compared) -> None:
    powers = (request.rho, request.gamma)
    if (
        request.weights not in WEIGHTS
        or len(request.causes) != 1
        or not all(0 <= power <= MAX_POWER for power in powers)
    ):
        raise ConfigurationError(
            f"the test must have weights {', '.join(map(repr, WEIGHTS))}, one cause, and powers from 0 to "
            f"{MAX_POWER:g}; got {request.weights[:40]!r}, {len(request.causes)} causes and powers {powers}",
            where="weights",
            hint="Start a new fit.",
        )


def _published(number: float, least: int = MIN_PUBLISHED) -> int | None:
    return None if np.isnan(number) else published(number, least)


def _without_small(counts: Floats) -> Floats:
    return np.where(is_small(counts, MIN_PUBLISHED), np.nan, counts)


NOT_BY_SITE = Only("stratify_by_site=False", lambda model: not model.stratify_by_site)
ON_A_GRID = Only(
    "stratify_by_site=False and times=None", lambda model: not model.stratify_by_site and model.times is None
)
WITH_POWERS = Only('weights="fleming-harrington"', lambda model: model.weights == "fleming-harrington")


class LogRank(TableEstimator):
    """Log-rank test of equal survival in groups, over all sites.

    By default the test is stratified by site, as R's ``survdiff`` with ``strata(site)``: each site compares its
    patients at its event times, and returns observed and expected events by group and their covariance. Times do not
    leave the site, no permission is needed, and differences between sites do not affect the comparison of groups.

    Without strata, the test is that of the summed tables of :class:`KaplanMeier`, however the patients are split over
    sites; with ``times="exact"`` it equals the test of the pooled patients.

    Parameters
    ----------
    group : str
        A column, or a category whose levels are columns ``name=level``.
    stratify_by_site : bool, default True
        Stratify the test by site. If False, patients of all sites are compared at shared times.
    weights : {"logrank", "wilcoxon", "tarone-ware", "fleming-harrington"}, default "logrank"
        Weights of the times: 1, patients at risk, their square root, or S^rho (1 - S)^gamma with the pooled survival
        before the time.
    rho, gamma : float, default 1 and 0
        Powers of Fleming-Harrington weights, from 0 to 10; refused with other weights.
    levels : sequence of float, optional
        Values of the column that make groups, 0 and 1 by default.
    times : sequence of float or "exact", optional
        Shared times, as for :class:`KaplanMeier`; refused if stratified by site, which needs none.
    n_times : int, default 64
        Number of times of the grid; refused without one.
    horizon : float, optional
        End of follow-up: later events do not count. By default all events count if stratified by site or with
        ``times="exact"``, and a grid ends at the time by which 95 % of the follow-ups ended.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored.
    missing : {"complete"}, default "complete"
        Patients whose group is missing are left out; ``missing_`` counts them.

    Attributes
    ----------
    statistic_ : float
        Chi-square statistic.
    p_value_ : float
        p-value of the test.
    degrees_of_freedom_ : int
        Number of groups that were at risk, minus one.
    score_, covariance_ : array of shape (g,), (g, g)
        For the g groups: weighted observed minus expected events, and their covariance. "wilcoxon" and "tarone-ware"
        use the share of patients at risk instead of their number, which does not change the test.
    observed_, expected_ : array of shape (g,)
        Events by group, and their expectation under equal survival, without weights. In a loaded model, a small number
        of events is NaN.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range or has no effect with the others, or the data have no column `group`.
    DataError
        No patient has an event, or fewer than two groups are at risk at the time of an event.
    RefusedByPolicy
        The grid has more than 256 or exact times, which a site's policy does not permit.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    References
    ----------
    .. [1] N. Mantel, "Evaluation of survival data and two new rank order statistics arising in its consideration",
       Cancer Chemotherapy Reports 50 (1966), 163-170.

    Examples
    --------
    >>> import multicentre as mc
    >>> simulate = mc.datasets.simulate_survival
    >>> sites = {name: simulate(200, random_state=seed) for seed, name in enumerate(["lyon", "oslo"])}
    >>> model = mc.survival.LogRank("x2").fit(mc.Federation.in_process(sites))
    >>> model.degrees_of_freedom_
    1
    """

    site_part: ClassVar[type[TablePart]] = LogRankSite
    model_phrases: ClassVar[Phrases] = {
        "stratify_by_site": {True: "stratified by site", False: "not stratified by site"},
        "weights": "weights {}",
        "rho": lambda model: f"rho {model.rho:g}" if model.weights == "fleming-harrington" else "",
        "gamma": lambda model: f"gamma {model.gamma:g}" if model.weights == "fleming-harrington" else "",
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        **TableEstimator.parameter_ranges,
        "group": COLUMN,
        "stratify_by_site": Flag(),
        "weights": OneOf(*WEIGHTS),
        "rho": Real(0, MAX_POWER),
        "gamma": Real(0, MAX_POWER),
        "cause": Integer(1, 127),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        **TableEstimator.saved_attributes,
        "score_": PLAIN,
        "covariance_": PLAIN,
        "observed_": Saved(_without_small),
        "expected_": PLAIN,
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"observed_"})
    applicable: ClassVar[Applicable] = {
        **TableEstimator.applicable,
        "times": NOT_BY_SITE,
        "n_times": ON_A_GRID,
        "rho": WITH_POWERS,
        "gamma": WITH_POWERS,
    }
    observed_: Floats
    expected_: Floats
    score_: Floats
    covariance_: Floats

    def __init__(
        self,
        group: str | None = None,
        *,
        stratify_by_site: bool = True,
        weights: Weights = "logrank",
        rho: float = 1.0,
        gamma: float = 0.0,
        levels: Sequence[float] | None = None,
        times: Times = None,
        n_times: int = 64,
        horizon: float | None = None,
        cause: int = 1,
        missing: CompleteOnly = "complete",
    ) -> None:
        self.missing = missing
        self.group = group
        self.stratify_by_site = stratify_by_site
        self.weights = weights
        self.rho = rho
        self.gamma = gamma
        self.levels = plain(levels)
        self.times = plain(times)
        self.n_times = n_times
        self.horizon = horizon
        self.cause = cause

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        if not self.stratify_by_site:
            return super().planned_steps()
        return steps_of_agreement(self._until()) | {"sum_scores"}

    def to_frame(self) -> pd.DataFrame:
        """Return a row per group: observed and expected events, and their weighted difference."""
        import pandas as pd

        check_is_fitted(self, "statistic_")
        columns = {"observed": self.observed_, "expected": self.expected_, "observed_minus_expected": self.score_}
        return pd.DataFrame({"group": self.groups_, **columns})

    def summary(self) -> pd.DataFrame:
        """Return events, the statistic, its degrees of freedom and the p-value, as a frame with the column ``value``.

        The printed frame ends with sentences on the test, missing values and sites that were left out.
        """
        from multicentre.estimator.results import summarise

        check_is_fitted(self, "statistic_")
        sizes = {"patients": sum(self.n_patients_.values())} if "_n_by_group" in vars(self) else {}
        events = {} if np.isnan(self.observed_).any() else {"events": round(float(self.observed_.sum()))}
        test = {"statistic": self.statistic_, "degrees of freedom": self.degrees_of_freedom_, "p-value": self.p_value_}
        return summarise({**sizes, **events, **test}, self._remarks(), model=self.describe_model())

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the test, and events by group."""
        import pandas as pd

        columns = {"statistic": [self.statistic_], "df": [self.degrees_of_freedom_], "p_value": [self.p_value_]}
        groups = self.to_frame()
        groups["observed"] = [_published(number, self.least_published) for number in self.observed_.tolist()]
        return {"test": pd.DataFrame(columns, index=["log-rank"]), "groups": groups}

    def answer(self) -> str:
        """Return the statistic and the p-value of the test."""
        check_is_fitted(self, "statistic_")
        by = ", stratified by site" if self.stratify_by_site else ""
        groups = f"Test of equal survival in {len(self.groups_)} groups of {self.group}{by}"
        test = f"chi-square {number_text(self.statistic_)} with {self._freedom()}, {p_text(self.p_value_)}"
        return self._stating_horizon(f"{groups}: {test}.")

    def main_figure(self) -> Figure:
        """Return observed and expected events by group."""
        check_is_fitted(self, "statistic_")
        series = {"observed": self.observed_.tolist(), "expected": self.expected_.tolist()}
        names = [named(self.group, name) for name in self.groups_]
        return Bars("Log-rank test", "Events by group.", "model", "events", names, series, {})

    @property
    def groups_(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self._grouping.labels

    @property
    def n_patients_(self) -> dict[str, int]:
        """Patients by group."""
        return dict(zip(self.groups_, map(round, self._n_by_group), strict=True))

    @property
    def _by_group(self) -> tuple[Floats, Floats, Floats]:
        return self.observed_, self.expected_, self.score_

    def assess(
        self,
        data: SurvivalData,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return an empty dict: a test makes no predictions."""
        return {}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of the test."""
        check_is_fitted(self, "statistic_")
        by = "by site" if self.stratify_by_site else "over all sites"
        result = f"chi-square {self.statistic_:.3g} with {self._freedom()}, {p_text(self.p_value_)}"
        columns = ["group", "observed", "expected", "observed minus expected"]
        by_group = zip(self.groups_, *(each.tolist() for each in self._by_group), strict=True)
        rows: list[list[str | float | None]] = [
            [named(self.group, name), count_text(_published(n), self.least_published), expected, score]
            for name, n, expected, score in by_group
        ]
        caption = f"Test of equal survival of the groups, {by}, weights {self.weights!r}: {result}."
        return [Table("Log-rank test", caption, "model", columns, rows)]

    def _causes(self) -> tuple[int, ...]:
        return (self.cause,)

    def _until(self) -> Needs:
        return Needs(times=np.array([LARGEST if self.horizon is None else float(self.horizon)]), cause=int(self.cause))

    def _fit(self, session: Session) -> None:
        if not self.stratify_by_site:
            super()._fit(session)
            return
        self._agree(session, self._until())
        groups = self._ask()
        request = Compared(
            groups.columns, groups.levels, groups.causes, self.weights, float(self.rho), float(self.gamma)
        )
        scores = session.once("scores", Scores, lambda: session.sum(LogRankSite.sum_scores, request))
        self._set_events(scores.sizes, np.round(scores.observed), scores.expected)
        n_elsewhere = round(scores.n_patients - float(scores.sizes.sum()))
        self.n_left_out_ = n_elsewhere + (self.missing_values_.n_incomplete or 0)
        self.history_ = []
        self._set_test(scores.score, scores.covariance)

    def _show(self, table: RiskTable) -> None:
        died, at_risk = table.died, table.at_risk
        scale = float(table.n_patients.sum())
        weights = weigh_times(died, at_risk, self.weights, rho=self.rho, gamma=self.gamma, scale=scale)
        self._set_events(table.n_patients, died.sum(axis=1), expected_events(died, at_risk))
        self._set_test(*compare_groups(died, at_risk, weights))

    def _set_test(self, score: Floats, covariance: Floats) -> None:
        self.score_, self.covariance_ = score, covariance
        self.statistic_, self.degrees_of_freedom_, self.p_value_ = chi_square(score, covariance)
        if not self.degrees_of_freedom_:
            raise DataError(
                "at least two groups must be at risk at the time of an event; got fewer than two groups",
                where=f"group {self.group!r}",
                hint="Name a column with two levels or more.",
            )

    def _set_events(self, sizes: Floats, observed: Floats, expected: Floats) -> None:
        self._n_by_group, self.observed_, self.expected_ = sizes.tolist(), observed, expected

    def _freedom(self) -> str:
        return f"{self.degrees_of_freedom_} degree{'s' if self.degrees_of_freedom_ > 1 else ''} of freedom"

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        # The test needs no counts by group and time, many of which are small.
        return {name: value for name, value in arrays.items() if name not in ("events", "leaving")}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._set_test(self.score_, self.covariance_)
