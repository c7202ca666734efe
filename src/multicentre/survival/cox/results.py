"""Results of a fitted Cox model: hazard ratios, intervals, tests, and comparison of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.presentation import effect_text, tests_frame
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes
from multicentre.survival.cox.maths import Combined, TestResult, combine, hazard_ratios, wald_p_values
from multicentre.survival.cox.messages import OwnFit
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.estimator import SurvivalEstimator

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Attributes that files of a fitted model hold.
_INFERENCE = ("standard_errors_", "model_standard_errors_", "p_values_", "hazard_ratios_", "covariance_")
_FIT = ("coef_", "log_likelihood_", "n_patients_", "n_events_", "converged_", "lead_")
# Largest number of columns in the table and the plot of a fit.
MOST_ROWS = 40


@dataclass(frozen=True)
class SiteEffects:
    """Estimates of the separate fits of the sites, and their combination.

    Parameters
    ----------
    columns, sites : tuple of str
        Names of the d columns and the s sites.
    coefficients, standard_errors : arrays of shape (s, d)
        Log hazard ratios per unit of each column, and their standard errors; NaN where a site has no estimate.
    combined : Combined
        Arrays of shape (d,): fixed and random effects, Cochran's Q, I squared.
    refused : mapping of str to str
        Reasons of the sites whose policy or guard refused, by site.
    """

    columns: tuple[str, ...]
    sites: tuple[str, ...]
    coefficients: Floats
    standard_errors: Floats
    combined: Combined
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per site and column: the coefficient and its standard error."""
        import pandas as pd

        index = pd.MultiIndex.from_product([self.sites, self.columns], names=["site", "column"])
        columns = {"coefficient": self.coefficients.ravel(), "standard_error": self.standard_errors.ravel()}
        return pd.DataFrame(columns, index=index).reset_index()


class CoxResults(SurvivalEstimator):
    """Fitted Cox model.

    Attributes
    ----------
    coef_ : array of shape (d,)
        Log hazard ratios per unit of each of the d columns; 0 for a column without information.
    standard_errors_ : array of shape (d,)
        Standard errors; robust with ``robust=True``. NaN, as are intervals and p-values, for a column without
        information, and for a coefficient more than a quarter of a standard error from the maximum of the likelihood (a
        large penalty, one round, or rounds that ended early).
    model_standard_errors_ : array of shape (d,)
        Standard errors from the information, independent of `robust`.
    covariance_ : array of shape (d, d)
        Covariance of the coefficients, from which `standard_errors_` follow; available for penalised coefficients too.
    hazard_ratios_ : array of shape (d, 3)
        Per unit of each column: ratio, lower and upper end of the interval at `confidence_level`.
    p_values_ : array of shape (d,)
        Two-sided Wald tests.
    log_likelihood_ : float
        Log partial likelihood, without the penalty; stratified by site if each site has a separate baseline.
    tests_ : dict of str to TestResult
        Tests of the null hypothesis that all coefficients are 0: "likelihood_ratio", "wald" and "score". After one
        round only "wald"; if a column has no standard error, only "score".
    n_patients_, n_events_ : int
        Patients and events of the fit; events beyond the horizon of a grid do not count.
    converged_ : bool
        True if the rounds ended at the maximum of the likelihood.
    lead_ : str
        Lead site of a fit in one round; empty otherwise.
    """

    may_be_missing: ClassVar[frozenset[str]] = frozenset(_INFERENCE)
    saved_attributes: ClassVar[SavedAttributes] = {
        **SurvivalEstimator.saved_attributes,
        **dict.fromkeys((*_INFERENCE, *_FIT), PLAIN),
        "tests_": Saved(
            lambda tests: {name: asdict(test) for name, test in tests.items()},
            lambda facts: {name: TestResult(**test) for name, test in facts.items()},
        ),
    }
    coef_: Floats
    standard_errors_: Floats
    hazard_ratios_: Floats
    p_values_: Floats
    tests_: dict[str, TestResult]
    confidence_level: float
    lead_: str

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with patients, events, and a note.

        The note, in ``attrs["missing"]``, states missing values, and sites that were left out.
        """
        from multicentre.estimator.results import with_note

        check_is_fitted(self, "model_")
        sizes = f"{self.n_patients_} patients, {self.n_events_} events."
        return with_note(self.to_frame(), self._remarks(), remark=sizes)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per column: coefficient, standard error, hazard ratio with its limits, and p-value."""
        import pandas as pd

        check_is_fitted(self, "model_")
        ratios = self.hazard_ratios_.T
        table = {
            "coefficient": self.coef_,
            "standard_error": self.standard_errors_,
            "hazard_ratio": ratios[0],
            "lower": ratios[1],
            "upper": ratios[2],
            "p_value": self.p_values_,
        }
        return pd.DataFrame(table, index=list(self.feature_names_in_))

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the hazard ratios, and the tests of all of them together."""
        return {"hazard-ratios": self.to_frame()} | ({"tests": tests_frame(self.tests_)} if self.tests_ else {})

    def answer(self) -> str:
        """Return the hazard ratio of the first column, with its interval and p-value."""
        check_is_fitted(self, "model_")
        ratio, lower, upper = self.hazard_ratios_[0].tolist()
        row = (self.feature_names_in_[0], ratio, lower, upper)
        n_others = len(self.feature_names_in_) - 1
        return effect_text("hazard ratio", row, float(self.p_values_[0]), self.confidence_level, n_others)

    def main_figure(self) -> Figure:
        """Return the forest plot of the hazard ratios, per standard deviation of each column."""
        check_is_fitted(self, "model_")
        return self._forest_of_columns()

    def forest_plot(self, column: str, effects: SiteEffects) -> Forest:
        """Return a forest plot of a column's hazard ratio: a row per site, the pooled fit, and the combined sites.

        Parameters
        ----------
        column : str
        effects : SiteEffects
            Result of :meth:`FedCox.by_site`.

        Raises
        ------
        ConfigurationError
            The fit has no column of this name.
        """
        check_is_fitted(self, "model_")
        if column not in effects.columns:
            raise ConfigurationError(
                f"column must be one of the fit's columns; got {column!r}",
                where=column,
                hint="Name one of feature_names_in_.",
            )
        place, combined = effects.columns.index(column), effects.combined
        estimates = zip(effects.sites, effects.coefficients[:, place], effects.standard_errors[:, place], strict=True)
        rows = [self._forest_row(site, value, error) for site, value, error in estimates]
        pooled = [
            self._forest_row("all sites, pooled fit", self.coef_[place], self.standard_errors_[place]),
            self._forest_row(
                "sites combined, random effects", combined.random[place], combined.random_standard_error[place]
            ),
        ]
        caption = (
            f"Separate fit of each site, and {100 * self.confidence_level:g} % intervals; squares by weight. "
            f"Cochran's Q {combined.q[place]:.2f} (p {combined.q_p_value[place]:.3f}), I squared "
            f"{100 * combined.i_squared[place]:.0f} %."
        )
        return _forest_of(f"Hazard ratio of {column} by site", caption, rows, pooled)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of hazard ratios and their forest plot; plots by site too, if the caller holds the data.

        Parameters
        ----------
        sites : mapping of str to SurvivalData
        labels : mapping
            Not used, present for API consistency by convention.
        """
        check_is_fitted(self, "model_")
        figures: list[Figure] = [self._table(), self._forest_of_columns()]
        site_data = {site: data for site, data in sites.items() if isinstance(data, SurvivalData)}
        if len(site_data) > 1:
            effects = self._effects_of(site_data)
            strongest = np.argsort(np.nan_to_num(self.p_values_, nan=1.0), kind="stable")[:2]
            figures += [self.forest_plot(self.feature_names_in_[place], effects) for place in strongest]
        return figures

    def _effects_of(self, sites: Mapping[str, SurvivalData]) -> SiteEffects:
        raise NotImplementedError

    def _effects(self, sites: Sequence[str], answers: Mapping[str, OwnFit]) -> SiteEffects:
        nothing = np.zeros(len(self.feature_names_in_))
        none = OwnFit(nothing, nothing, patients=0)
        fits = [answers.get(site, none) for site in sites]
        scaled, errors = (np.array([getattr(fit, name) for fit in fits]) for name in ("coefficients", "errors"))
        standard_errors = np.where(errors > 0, errors / self.agreed_.spread, np.nan)
        coefficients = np.where(errors > 0, scaled / self.agreed_.spread, np.nan)
        return SiteEffects(
            self.feature_names_in_, tuple(sites), coefficients, standard_errors, combine(coefficients, standard_errors)
        )

    def _table(self) -> Table:
        order = np.argsort(np.nan_to_num(self.p_values_, nan=1.0), kind="stable")[:MOST_ROWS]
        table = self.to_frame().iloc[order]
        rows = [[name, *(_finite_or_none(value) for value in row[1:])] for name, *row in table.itertuples()]
        columns = ["column", "standard error", "hazard ratio", "lower", "upper", "p-value"]
        caption = (
            f"Per unit of each column, with {100 * self.confidence_level:g} % intervals; {self.n_patients_} patients, "
            f"{self.n_events_} events."
        )
        return Table("Hazard ratios", caption, "model", columns, rows)

    def _forest_of_columns(self) -> Forest:
        order = np.argsort(np.nan_to_num(self.p_values_, nan=1.0), kind="stable")[:MOST_ROWS]
        spread = self.agreed_.spread
        rows = [
            self._forest_row(
                self.feature_names_in_[place],
                self.coef_[place] * spread[place],
                self.standard_errors_[place] * spread[place],
            )
            for place in order
        ]
        caption = f"Per standard deviation of each column, with {100 * self.confidence_level:g} % intervals."
        return _forest_of("Hazard ratios of all sites", caption, rows, [])

    def _forest_row(self, name: str, coefficient: float, error: float) -> _Row:
        if not (np.isfinite(coefficient) and np.isfinite(error)):
            return name, None, None, None
        ratio, low, high = hazard_ratios(np.array([coefficient]), np.array([error]), self.confidence_level)[0].tolist()
        return name, ratio, low, high

    def _set_inference(self, fit: Fit, spread_of: Floats, model_based: Floats) -> None:
        spread = self.agreed_.spread
        self.coef_ = fit.coefficients / spread
        self.covariance_ = spread_of / np.outer(spread, spread)
        errors, model_errors = (np.sqrt(np.diagonal(each)) / spread for each in (spread_of, model_based))
        self.standard_errors_, self.model_standard_errors_ = (
            np.where(fit.reliable, each, np.nan) for each in (errors, model_errors)
        )
        self.p_values_ = wald_p_values(self.coef_, self.standard_errors_)
        self.hazard_ratios_ = hazard_ratios(self.coef_, self.standard_errors_, self.confidence_level)


_Row = tuple[str, float | None, float | None, float | None]


def _forest_of(title: str, caption: str, rows: Sequence[_Row], pooled: Sequence[_Row]) -> Forest:
    names, values, low, high = (list(column) for column in zip(*rows, *pooled, strict=True))
    return Forest(title, caption, "model", "hazard ratio", names, values, low, high, len(pooled), 1.0)


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
