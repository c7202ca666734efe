"""Aalen-Johansen estimate of cumulative incidence over several sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from multicentre.core.published_counts import published
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Metric
from multicentre.estimator.figures import Curves, Figure
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import OneOf, ParameterRanges, Real, Where
from multicentre.estimator.presentation import interval_text, number_text
from multicentre.survival.agreement.rounds import StatedTimes
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
from multicentre.survival.curves.tables.rounds import Times, plain
from multicentre.survival.curves.tables.site import TablePart
from multicentre.survival.times import hazard, is_sequence

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

Variance = Literal["delta", "aalen"]

# Distance from 0 and 1 below which an incidence has no interval on the scale log(-log F).
SMALLEST = float(np.finfo(np.float64).eps)


def cumulative_incidence(events: Floats, at_risk: Floats) -> tuple[Floats, Floats]:
    """Return the incidence of each cause, shape (c, K), and survival before each time, shape (K,).

    Aalen and Johansen, Scandinavian Journal of Statistics 5 (1978).

    Parameters
    ----------
    events : array of shape (c, K)
    at_risk : array of shape (K,)

    Examples
    --------
    >>> incidence, before = cumulative_incidence(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([4.0, 2.0]))
    >>> incidence.tolist(), before.tolist()
    ([[0.25, 0.25], [0.0, 0.375]], [1.0, 0.75])
    """
    shares = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    before = np.concatenate([[1.0], np.cumprod(1.0 - shares.sum(axis=0))[:-1]])
    return np.cumsum(before * shares, axis=1), before


def incidence_variance(events: Floats, at_risk: Floats, kind: Variance = "delta") -> Floats:
    """Return the variance of the incidence of each cause, shape (c, K).

    With F_t the incidence up to t and S_k the survival before the k-th time, the sum over times up to t of
    ``(F_t - F_k)^2 d / (n (n - d)) + S_k^2 d_j (n - d_j) / n^3 - 2 (F_t - F_k) S_k d_j / n^2`` ("delta": Dinse and
    Larson, Biometrika 73 (1986), equation 6), or the same with n - 1 for one n ("aalen": Pintilie, Competing Risks
    (2006), equation 4.5).

    Parameters
    ----------
    events : array of shape (c, K)
    at_risk : array of shape (K,)
    kind : {"delta", "aalen"}

    Examples
    --------
    >>> events, at_risk = np.array([[1.0, 1.0]]), np.array([4.0, 2.0])
    >>> incidence_variance(events, at_risk).round(4).tolist()
    [[0.0469, 0.082]]
    """
    incidence, before = cumulative_incidence(events, at_risk)
    died = events.sum(axis=0)
    if kind == "delta":
        square = _over(died, at_risk * (at_risk - died))
        variances = before**2 * events * _over(at_risk - events, at_risk**3)
        cross = before * _over(events, at_risk**2)
    else:
        square = _over(died, (at_risk - 1.0) * (at_risk - died))
        variances = before**2 * events * _over(at_risk - events, at_risk**2 * (at_risk - 1.0))
        cross = before * events * _over(at_risk - events, at_risk * (at_risk - died) * (at_risk - 1.0))
    squares = (
        incidence**2 * np.cumsum(square)
        - 2.0 * incidence * np.cumsum(incidence * square, axis=1)
        + np.cumsum(incidence**2 * square, axis=1)
    )
    crossed = incidence * np.cumsum(cross, axis=1) - np.cumsum(incidence * cross, axis=1)
    return np.maximum(squares + np.cumsum(variances, axis=1) - 2.0 * crossed, 0.0)


def incidence_interval(incidence: Floats, variance: Floats, quantile: float) -> tuple[Floats, Floats]:
    """Return limits of incidences, symmetric in log(-log F), of the same shapes; 0 where the incidence is 0.

    Parameters
    ----------
    incidence, variance : array of shape (..., K)
    quantile : float
        Quantile of the normal distribution, 1.96 for 95 %.

    Examples
    --------
    >>> lower, upper = incidence_interval(np.array([0.5]), np.array([0.01]), 1.96)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.295], [0.675])
    """
    inside = (incidence > SMALLEST) & (incidence < 1.0 - SMALLEST)
    logs = np.log(incidence, where=inside, out=np.full_like(incidence, -1.0))
    turn = np.where(inside, quantile * np.sqrt(variance) / np.where(inside, incidence * logs, 1.0), 0.0)
    lower, upper = np.exp(logs * np.exp(-turn)), np.exp(logs * np.exp(turn))
    return np.where(inside, lower, incidence), np.where(inside, upper, incidence)


def _over(part: Floats, whole: Floats) -> Floats:
    shape = np.broadcast_shapes(part.shape, whole.shape)
    return np.divide(part, whole, out=np.zeros(shape), where=np.broadcast_to(whole > 0, shape))


def _are_causes(value: Any) -> bool:
    """Return whether a value is a sequence of different codes of causes."""
    if not is_sequence(value):
        return False
    causes = np.asarray(value)
    return bool(
        len(causes) and causes.dtype.kind in "iu" and causes.min() > 0 and len(np.unique(causes)) == len(causes)
    )


class AalenJohansenSite(TablePart):
    """Site part of the cumulative incidence; the agreement counts events of every cause as cause 1.

    All steps are inherited, see ``survival/curves/tables/site.py``.
    """

    method: ClassVar[str] = "aalen-johansen"
    revision: ClassVar[int] = 2

    def __init__(self, site: str, data: Any) -> None:
        super().__init__(site, data)
        self._causes = self.data.event
        self.data = self.data.with_arrays(event=np.minimum(self._causes, 1))

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Cause of every patient's event, 0 for none."""
        return self._causes if self.used is None else self._causes[self.used]


class AalenJohansen(TableEstimator):
    """Aalen-Johansen estimate of the cumulative incidence of competing causes.

    Requests, grid and groups are those of :class:`KaplanMeier`; patients are counted by cause too. The grid is that of
    the events of any cause. ``SurvivalData.event`` holds the cause of a patient's event: 1, 2, 3, ...

    Parameters
    ----------
    group : str, optional
        A column, or a category whose levels are columns ``name=level``.
    causes : sequence of int, default (1, 2)
        Causes of interest; events of other causes are treated as censored.
    levels : sequence of float, optional
        Values of the column that make groups, 0 and 1 by default.
    times : sequence of float or "exact", optional
        Times of the grid, as for :class:`KaplanMeier`.
    at : sequence of float, optional
        Times at which results are stated, in the tables of results and below figures; by default round ones. A grid of
        quantiles contains them.
    n_times : int, default 64
        Number of times of the grid.
    horizon : float, optional
        Last time of the grid; by default the time by which 95 % of the follow-ups ended.
    confidence_level : float, default 0.95
        Confidence of the intervals, symmetric in log(-log F).
    variance : {"delta", "aalen"}, default "delta"
        Variance by equation 6 of Dinse and Larson [2]_, or by Aalen's estimator.
    missing : {"complete"}, default "complete"
        Patients whose group is missing are left out; ``missing_`` counts them.

    Attributes
    ----------
    incidence_, lower_, upper_, variance_ : array of shape (g, c, K)
        Incidence in the g groups of each of the c causes up to each of the K times, its limits and its variance.
    cumulative_hazard_ : array of shape (g, c, K)
        Nelson-Aalen estimate of each cause.
    survival_ : array of shape (g, K)
        Share of patients without an event of any of the causes.
    events_ : array of shape (g, c, K)
        Events since the time before.
    at_risk_ : array of shape (g, K)
        Patients at risk.

    Raises
    ------
    ConfigurationError, DataError, RefusedByPolicy, SchemaMismatch
        As for :class:`KaplanMeier`.

    References
    ----------
    .. [1] O. O. Aalen, S. Johansen, "An empirical transition matrix for non-homogeneous Markov chains based on censored
       observations", Scandinavian Journal of Statistics 5 (1978), 141-150.
    .. [2] G. E. Dinse, M. G. Larson, "A note on semi-Markov models for partially censored data", Biometrika 73 (1986),
       379-386.

    Examples
    --------
    >>> import multicentre as mc
    >>> simulate = mc.datasets.simulate_survival
    >>> sites = {name: simulate(200, random_state=seed, competing=True) for seed, name in enumerate("ab")}
    >>> model = mc.survival.AalenJohansen().fit(mc.Federation.in_process(sites))
    >>> model.incidence_at([12.0, 24.0]).round(2).tolist()
    [[[0.3, 0.41], [0.16, 0.24]]]
    """

    site_part: ClassVar[type[TablePart]] = AalenJohansenSite
    model_phrases: ClassVar[Phrases] = {"causes": "causes {}", "variance": "{} variance", "at": "stated at {}"}
    parameter_ranges: ClassVar[ParameterRanges] = {
        **TableEstimator.parameter_ranges,
        "causes": Where("a sequence of different positive integers", _are_causes),
        "at": (None, SEQUENCE),
        "confidence_level": Real(0, 1, open="both"),
        "variance": OneOf("delta", "aalen"),
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
        causes: Sequence[int] = (1, 2),
        levels: Sequence[float] | None = None,
        times: Times = None,
        at: Sequence[float] | None = None,
        n_times: int = 64,
        horizon: float | None = None,
        confidence_level: float = 0.95,
        variance: Variance = "delta",
        missing: CompleteOnly = "complete",
    ) -> None:
        self.missing = missing
        self.group = group
        self.causes = causes
        self.levels = plain(levels)
        self.times = plain(times)
        self.at = plain(at)
        self.n_times = n_times
        self.horizon = horizon
        self.confidence_level = confidence_level
        self.variance = variance

    @property
    def _stated_times(self) -> StatedTimes:
        return stated_times(self.at)

    def incidence_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return the incidence at t given times, shape (g, c, t); NaN beyond the horizon."""
        check_is_fitted(self, "table_")
        return read_curve(self.incidence_, self.table_, times, start=0.0, horizon=self.horizon_)

    def to_frame(self) -> pd.DataFrame:
        """Return times, numbers and incidences as a frame with a row per group, cause and time."""
        import pandas as pd

        check_is_fitted(self, "table_")
        columns = {"events": self.events_, "incidence": self.incidence_, "lower": self.lower_, "upper": self.upper_}
        blocks = [
            pd.DataFrame(
                {
                    "group": name,
                    "cause": cause,
                    "time": self.times_,
                    "at_risk": self.at_risk_[place],
                    **{key: rows[place, number] for key, rows in columns.items()},
                }
            )
            for place, name in enumerate(self.groups_)
            for number, cause in enumerate(self._causes())
        ]
        return pd.concat(blocks, ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """Return a row per group and cause: patients, events, and incidence at the horizon with its limits.

        The printed frame ends with sentences on missing values and on sites that were left out.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "table_")
        least = self.least_published
        index = pd.MultiIndex.from_product([self.groups_, self._causes()], names=["group", "cause"])
        columns = {
            "patients": [published(n, least) for n in self.n_patients_.values() for _ in self._causes()],
            "events": [published(n, least) for n in self.events_.sum(axis=2).ravel().tolist()],
            "time": self.horizon_,
            "incidence": self.incidence_[:, :, -1].ravel(),
            "lower": self.lower_[:, :, -1].ravel(),
            "upper": self.upper_[:, :, -1].ravel(),
        }
        return with_note(pd.DataFrame(columns, index=index), self._remarks(), model=self.describe_model())

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the incidences at chosen times, and the curves while enough patients are at risk."""
        check_is_fitted(self, "table_")
        frame = self.to_frame()
        curves = frame.loc[frame["at_risk"] >= MIN_SHOWN, ["group", "cause", "time", "incidence", "lower", "upper"]]
        tables = {"incidence-at-times": self._at_chosen_times()}
        return tables | ({"curves": curves} if len(self.times_) > MAX_STATED else {})

    def _at_chosen_times(self) -> pd.DataFrame:
        import pandas as pd

        times = np.array(shown_times(self.at, self.times, self.horizon_, self.agreed_.unit))
        columns = {"incidence": self.incidence_, "lower": self.lower_, "upper": self.upper_}
        blocks = []
        for number, cause in enumerate(self._causes()):
            curves = {
                name: read_curve(values[:, number], self.table_, times, start=0.0, horizon=self.horizon_)
                for name, values in columns.items()
            }
            for place, group in enumerate(self.groups_):
                values = {name: rows[place] for name, rows in curves.items()}
                blocks.append(pd.DataFrame({"group": group, "cause": cause, "time": times, **values}))
        return pd.concat(blocks, ignore_index=True)

    def answer(self) -> str:
        """Return the incidence of the first cause at the horizon, in each group, with its interval."""
        check_is_fitted(self, "table_")
        horizon = f"{number_text(float(self.times_[-1]))} {self.agreed_.unit}".strip()
        sentences = []
        for place, name in enumerate(self.groups_):
            value, lower, upper = (float(rows[place, 0, -1]) for rows in (self.incidence_, self.lower_, self.upper_))
            of = "" if self.group is None else f" in {named(self.group, name)}"
            text = interval_text(value, lower, upper, self.confidence_level)
            sentences.append(f"Cumulative incidence of cause {self._causes()[0]}{of} at {horizon}: {text}.")
        return self._stating_horizon(" ".join(sentences))

    def main_figure(self) -> Figure:
        """Return the incidences with numbers at risk."""
        return self.figures({}, {})[0]

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
            ``distance``, the largest difference at any time, for any cause, in any group that the patients have.
        """
        check_is_fitted(self, "table_")
        table = self._count(data)
        here = table.n_patients > 0
        return {"distance": float(np.abs(_incidence(table) - self.incidence_)[here].max(initial=0.0))}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the figure of the incidences, with numbers at risk below it."""
        check_is_fitted(self, "table_")
        table = self.table_
        times = chosen_times(self.horizon_, self.agreed_.unit)
        positions = counted_times(table.grid, times, exact=table.exact)
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
            f"Share of the patients with an event of each cause, over all sites, "
            f"with {100 * self.confidence_level:g} % intervals; drawn while at least {MIN_SHOWN} patients "
            f"are at risk. The numbers at risk are given below. {self.coarsening_line_}".rstrip(),
            "model",
            time_label(self.agreed_.unit),
            "cumulative incidence",
            bands,
            table.exact,
            positions,
            numbers_below(table, positions, self.group, least=self.least_published),
            self.horizon_,
        )
        return [figure]

    def _name(self, label: str, cause: int) -> str:
        return f"cause {cause}" if self.group is None else f"{named(self.group, label)}, cause {cause}"

    def _first_cause(self) -> int:
        return 1

    def _causes(self) -> tuple[int, ...]:
        return tuple(int(cause) for cause in self.causes)

    def _show(self, table: RiskTable) -> None:
        quantile = float(norm.isf((1.0 - self.confidence_level) / 2.0))
        rows = list(zip(table.events, table.at_risk, strict=True))
        self.events_, self.at_risk_ = table.events, table.at_risk
        self.incidence_ = _incidence(table)
        self.variance_ = np.array([incidence_variance(*row, self.variance) for row in rows])
        self.lower_, self.upper_ = incidence_interval(self.incidence_, self.variance_, quantile)
        self.cumulative_hazard_ = np.array(
            [np.cumsum([hazard(cause, at_risk) for cause in events], axis=1) for events, at_risk in rows]
        )
        self.survival_ = 1.0 - self.incidence_.sum(axis=1)


def _incidence(table: RiskTable) -> Floats:
    rows = zip(table.events, table.at_risk, strict=True)
    return np.array([cumulative_incidence(*row)[0] for row in rows])
