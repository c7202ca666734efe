"""Results of a fitted Cox model: hazard ratios, intervals, tests, and comparison of sites."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from multicentre.core.published_counts import count_text
from multicentre.core.session import Session
from multicentre.data.tabular import add_indicators, indicators_of
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MulticentreError,
    ProtocolRefused,
    RefusedByPolicy,
)
from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.formula import HasFormula, HasFormulaEffects
from multicentre.estimator.presentation import (
    effect_text,
    frame_of_tests,
    number_or_none,
    p_text,
    rows_of_tests,
    variable_of,
)
from multicentre.estimator.saved import PLAIN, SAVED_TESTS, SavedAttributes
from multicentre.estimator.site_estimates import NOT_ESTIMATED, Scale, SiteEstimates
from multicentre.estimator.terms import Estimates
from multicentre.statistics.chi_square import TestResult
from multicentre.survival.agreement.messages import NamedColumns, Prepared
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.cox.maths import hazard_ratios, wald_p_values
from multicentre.survival.cox.messages import OwnFit
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.estimator import PREDICTIONS, SurvivalEstimator
from multicentre.survival.fitted_models.base import SurvivalModel
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.fitted_models.derived import Named

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
V = TypeVar("V")
# Attributes that files of a fitted model hold.
_INFERENCE = ("standard_errors_", "model_standard_errors_", "p_values_", "hazard_ratios_", "covariance_")
# Names of results that a fit may lack, next to the predictions.
ROBUST_ERRORS, PROPORTIONALITY = "robust standard errors", "test of proportional hazards"
_FIT = ("coef_", "log_likelihood_", "n_patients_", "n_events_", "converged_", "lead_")
# Largest number of columns in the table and the plot of a fit.
MAX_ROWS = 40
# Level at which a rejected proportionality is part of the headline.
LEVEL_OF_TESTS = 0.05


@dataclass(frozen=True)
class SiteEffects(SiteEstimates):
    """Log hazard ratios of the separate fits of the sites, per unit of each column.

    Parameters are those of :class:`~multicentre.estimator.site_estimates.SiteEstimates`; ``mc.analytics.combine``
    combines them.
    """

    scale: Scale = "log"
    label: str = "hazard ratio"

    @property
    def coefficients(self) -> Floats:
        """Log hazard ratios, shape (s, d); NaN where a site has no estimate."""
        return self.estimates


class CoxResults(HasFormulaEffects, SurvivalEstimator):
    """Fitted Cox model.

    Attributes
    ----------
    coef_ : array of shape (d,)
        Log hazard ratios per unit of each of the d columns; 0 for a column without information.
    standard_errors_ : array of shape (d,)
        Standard errors; robust unless ``errors="model"``. NaN, as are intervals and p-values, for a column without
        information, and for a coefficient more than a quarter of a standard error from the maximum of the likelihood (a
        large penalty, one round, or rounds that ended early).
    model_standard_errors_ : array of shape (d,)
        Standard errors from the information, independent of `errors`.
    covariance_ : array of shape (d, d)
        Covariance of the coefficients, from which `standard_errors_` follow; available for penalised coefficients too.
    hazard_ratios_ : array of shape (d, 3)
        Per unit of each column: ratio, lower and upper end of the interval at `confidence_level`.
    p_values_ : array of shape (d,)
        Two-sided Wald tests.
    log_likelihood_ : float
        Log partial likelihood, without the penalty; stratified by site if each site has a separate baseline. NaN with
        probability weights.
    tests_ : dict of str to TestResult
        Tests of the null hypothesis that all coefficients are 0: "likelihood_ratio", "wald" and "score". After one
        round, with clusters and with probability weights only "wald"; if a column has no standard error, only "score".
    proportionality_ : dict of str to TestResult
        Tests of proportional hazards, once :meth:`answer` or a report has requested them.
    missing_results_ : dict of str to str
        Results that the fit lacks, and why: "predictions", "robust standard errors" or "test of proportional hazards",
        which the sites refused or which cannot be computed. Coefficients and other results are not affected.
    n_patients_, n_events_ : int
        Patients and events of the fit, without events after the horizon.
    converged_ : bool
        True if the rounds ended at the maximum of the likelihood.
    lead_ : str
        Lead site of a fit in one round; empty otherwise.
    """

    lacks: ClassVar[Mapping[str, str]] = {
        "penalty by cross-validation": "Not implemented yet; cross_validate compares stated penalties",
    }
    same_sites: ClassVar[bool] = True
    may_be_missing: ClassVar[frozenset[str]] = frozenset(_INFERENCE)
    saved_attributes: ClassVar[SavedAttributes] = {
        **SurvivalEstimator.saved_attributes,
        **HasFormula.saved_attributes,
        **dict.fromkeys((*_INFERENCE, *_FIT), PLAIN),
        "tests_": SAVED_TESTS,
        "proportionality_": replace(SAVED_TESTS, optional=True),
        "missing_results_": replace(PLAIN, optional=True),
    }
    coef_: Floats
    standard_errors_: Floats
    hazard_ratios_: Floats
    p_values_: Floats
    model_standard_errors_: Floats
    covariance_: Floats
    log_likelihood_: float
    converged_: bool
    n_patients_: int
    n_events_: int
    tests_: dict[str, TestResult]
    proportionality_: dict[str, TestResult]
    confidence_level: float
    lead_: str

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with patients, events, and a note.

        The note, in ``attrs["missing"]``, states missing values, and sites that were left out.
        """
        from multicentre.estimator.results import with_note

        check_is_fitted(self, "model_")
        frame = self.with_terms(self.to_frame())
        return with_note(frame, self._remarks(), model=self.describe_model(), remark=self._remark())

    def _remark(self) -> str:
        """Return sizes, joint tests, and the test of proportional hazards if it was requested."""
        test = vars(self).get("proportionality_", {}).get("global")
        proportional = f"Proportional hazards: {p_text(test.p_value)}, {test.name}." if test else ""
        lacking = " ".join(f"No {name}: {reason}." for name, reason in self._lacking().items())
        return " ".join(filter(None, (f"{self._sizes()}.", self.joint_tests_text(), proportional, lacking)))

    def _lacking(self) -> dict[str, str]:
        """Return the results that the fit lacks, with the reasons; empty for files of earlier versions."""
        return dict(vars(self).get("missing_results_", {}))

    def _reset_by_products(self) -> None:
        """Forget the results of an earlier fit that are requested on demand or may be missing."""
        if "proportionality_" in vars(self):
            del self.proportionality_
        self.missing_results_ = {}

    def _by_product(self, session: Session, name: str, make: Callable[[], V], otherwise: V) -> V:
        """Return a result that the coefficients do not need, or `otherwise` and a warning if it is refused."""
        try:
            with session.handling_refusals():
                return make()
        except ProtocolRefused:
            raise
        except (ConfigurationError, DisclosureRefused, RefusedByPolicy) as error:
            self.missing_results_[name] = error.placed
            warnings.warn(f"the fit has no {name}: {error.placed}.", UserWarning, stacklevel=4)
            return otherwise

    def to_frame(self) -> pd.DataFrame:
        """Return a row per column: coefficient, standard error, hazard ratio with its limits, and p-value.

        Columns of splines and polynomials have no hazard ratio, because none of them changes alone; see
        :meth:`term_tests` and :meth:`plot_effect`.
        """
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
        frame = pd.DataFrame(table, index=list(self.feature_names_in_))
        frame.loc[[*self._bases], ["hazard_ratio", "lower", "upper"]] = np.nan
        return frame

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the hazard ratios, and the tests of all of them together."""
        tests = {"tests": frame_of_tests(self.tests_)} if self.tests_ else {}
        return {"hazard-ratios": self.to_frame(), **tests, "terms": self.term_tests()}

    def answer(self) -> str:
        """Return the hazard ratio of the exposure (the first column by default), with its interval and p-value.

        If a test of proportional hazards rejects (p < 0.05), for the exposure or for all columns together, a further
        sentence says so. The sites are asked for the test, unless they were before.
        """
        check_is_fitted(self, "model_")
        frame = self.with_terms(self.to_frame())
        names = [str(name) for name in frame.index]
        place = self.first_effect(names)
        ratio, lower, upper, p_value = frame[["hazard_ratio", "lower", "upper", "p_value"]].iloc[place].tolist()
        effect = effect_text("hazard ratio", (names[place], ratio, lower, upper), p_value, self.confidence_level, names)
        if by_term := self._answer_by_term(names):
            effect = f"{by_term}; see its curve."
        return f"{self._stating_horizon(effect)} {self._proportionality_text(variable_of(names[place]))}".rstrip()

    def main_figure(self) -> Figure:
        """Return the forest plot per unit of each column; without such columns the first curve of an effect."""
        check_is_fitted(self, "model_")
        curves = [] if self._places() else self.effect_figures()
        return curves[0] if curves else self._forest_of_columns()

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return tables of hazard ratios and tests, a forest plot, and curves of effects.

        The sites are asked for the test of proportional hazards, if the federation of the fit is still available.
        """
        check_is_fitted(self, "model_")
        return [self._table(), *self._effects_and_terms(), self._table_of_tests()]

    def _effects_and_terms(self) -> list[Figure]:
        """Return the main figure, the tests of terms, and the other curves of effects."""
        main = self.main_figure()
        return [main, *self.terms_table(), *(curve for curve in self.effect_figures() if curve.title != main.title)]

    def _effects(self, sites: Sequence[str], answers: Mapping[str, OwnFit]) -> SiteEffects:
        nothing = np.zeros(len(self.feature_names_in_))
        none = OwnFit(nothing, nothing, patients=0)
        fits = [answers.get(site, none) for site in sites]
        scaled, errors = (np.array([getattr(fit, name) for fit in fits]) for name in ("coefficients", "errors"))
        standard_errors = np.where(errors > 0, errors / self.agreed_.spread, np.nan)
        coefficients = np.where(errors > 0, scaled / self.agreed_.spread, np.nan)
        names = self.feature_names_in_
        missing = {
            (site, names[place]): NOT_ESTIMATED.format(names[place])
            for site, errors_of_site in zip(sites, errors, strict=True)
            if (errors_of_site > 0).any()
            for place in np.flatnonzero(errors_of_site == 0).tolist()
        }
        return SiteEffects(names, tuple(sites), coefficients, standard_errors, missing=missing)

    @property
    def _columns_and_levels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        columns = self.feature_names_in_
        names = columns[: len(columns) - len(self.missing_values_.indicators)]
        return (*names, *self.model_columns[len(columns) :]), self.agreed_.levels

    @property
    def named_columns(self) -> NamedColumns:
        """Columns of the data that are no covariates."""
        weights, cluster = (getattr(self, name, None) or "" for name in ("weights", "cluster"))
        frequency = getattr(self, "weight_type", "frequency") == "frequency"
        return NamedColumns(self._offset_column, weights, cluster, frequency)

    @property
    def model_columns(self) -> tuple[str, ...]:
        """Columns of the fitted model: the covariates, and the offset."""
        return (*self.agreed_.columns, *filter(None, [self._offset_column]))

    def evaluated_model(self) -> SurvivalModel:
        """Return the fitted model of the columns of the data; see :meth:`predicting_model`."""
        if self.fitted_design is None and self.named_columns.names:
            return Named.of(self.predicting_model(), self.model_columns)
        return super().evaluated_model()

    def _naming_steps(self) -> set[str]:
        """Return the names of the steps that an offset, weights and clusters need."""
        return {"set_aside"} if self.named_columns.names else set()

    def _set_model(self, session: Session, make: Callable[[], CoxModel]) -> None:
        """Set the model of covariates and offset, whose coefficient is 1, or an empty one if its sums are refused."""
        model = self._by_product(session, PREDICTIONS, make, CoxModel.empty())
        if self._offset_column and not model.is_empty:
            coefficients, centre = np.append(model.coefficients, 1.0), np.append(model.centre, 0.0)
            model = replace(model, coefficients=coefficients, centre=centre)
        self.model_ = model

    def _check_formula(self) -> None:
        super()._check_formula()
        if self._parsed is not None and self._parsed.outcome:
            raise ConfigurationError(
                f"the formula must have no outcome, which is that of the survival data; got {self._parsed.outcome}",
                where="formula",
                hint="Write the covariates only.",
            )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_formula()

    def _agree(self, session: Session, needs: Needs) -> Prepared:
        part = cast("type[SurvivalPart]", self.site_part)
        named = self.named_columns
        agreement = agree(session, part, needs, self.missing, formula=self._parsed, named=named)
        self._set_design(agreement.shared)
        if self.fitted_design is not None:  # predictions need no weights and clusters
            others = (named.weights, named.cluster)
            self.design_ = replace(self.design_, passed=tuple(n for n in self.design_.passed if n not in others))
        return self._take(agreement)

    def _values(self, X: Any) -> Floats:
        self.predicting_model()
        design, (values, columns) = self.fitted_design, self._data_of(X)
        names = columns
        if design is not None:
            names, values = design.column_names, design.build(values, columns)
        elif self.missing_values_.indicators:
            marked = self.missing_values_.incomplete_columns
            values = add_indicators(values, columns, self.agreed_.levels, marked)
            names = (*columns, *indicators_of(marked))
        values = values[:, [names.index(name) for name in self.model_columns]]
        if self._offset_column and self.missing != "complete" and np.isnan(values[:, -1]).any():
            raise DataError("the offset must be complete; an entry is missing", where=self._offset_column)
        return values

    @property
    def _fill(self) -> Floats:
        return np.append(self.agreed_.centre, np.zeros(len(self.model_columns) - len(self.agreed_.columns)))

    def _estimates(self) -> Estimates:
        finite = np.isfinite(self.standard_errors_)
        covariance = np.where(np.outer(finite, finite), self.covariance_, np.nan)
        return Estimates(self.feature_names_in_, self.coef_, covariance)

    def _ratio_name(self) -> str:
        return "hazard_ratio"

    def _location(self) -> dict[str, tuple[float, float]]:
        pairs = zip(self.agreed_.centre.tolist(), self.agreed_.spread.tolist(), strict=True)
        return dict(zip(self.feature_names_in_, pairs, strict=True))

    def check_proportionality(self) -> dict[str, TestResult]:
        """Return tests of proportional hazards, by column and "global"; empty for a method without them."""
        return {}

    def _proportionality(self) -> dict[str, TestResult]:
        """Return the tests of proportional hazards, requested once per fit; empty if the sites do not answer."""
        if "proportionality_" not in vars(self):
            try:
                self.proportionality_ = self.check_proportionality()
            except NotFittedError:  # a loaded model
                return {}
            except MulticentreError as error:  # a closed federation, or sites that refuse
                self.missing_results_ = {**self._lacking(), PROPORTIONALITY: error.placed}
                return {}
            self.missing_results_ = {name: why for name, why in self._lacking().items() if name != PROPORTIONALITY}
        return self.proportionality_

    def _proportionality_text(self, variable: str) -> str:
        tests = self._proportionality()
        if not tests:
            return f"Proportional hazards were not tested{self._why_not_tested()}."
        p_values = {name: test.p_value for name, test in tests.items() if test.p_value < LEVEL_OF_TESTS}
        rejected = [name for name in p_values if variable_of(name) == variable]
        if rejected:
            listed = ", ".join(f"{name} ({p_text(p_values[name])})" for name in rejected)
            return f"Hazards are not proportional by {listed}: the ratio is an average over the follow-up."
        if "global" in p_values:
            return f"Hazards are not proportional by all covariates together ({p_text(p_values['global'])})."
        return ""

    def _why_not_tested(self) -> str:
        reason = self._lacking().get(PROPORTIONALITY, "")
        return reason and f" ({reason})"

    def _table(self) -> Table:
        names = ["hazard_ratio", "lower", "upper", "p_value", "coefficient", "standard_error"]
        table = self.with_terms(self.to_frame())[names].iloc[:MAX_ROWS]
        rows = [[name, *map(number_or_none, row)] for name, *row in table.itertuples()]
        columns = ["column", "hazard ratio", "lower", "upper", "p-value", "coefficient", "standard error"]
        caption = (
            f"Per unit of each column, with {100 * self.confidence_level:g} % intervals; {self._sizes()}. "
            f"A coefficient is the logarithm of a hazard ratio; the standard error is that of "
            f"the coefficient.{self._selection()}"
        )
        return Table("Hazard ratios", caption, "model", columns, rows)

    def _sizes(self) -> str:
        counts = {"patients": self.n_patients_, "events": self.n_events_}
        return ", ".join(f"{count_text(n, self.least_published)} {name}" for name, n in counts.items())

    def _forest_of_columns(self) -> Forest:
        rows = [
            self._forest_row(self.feature_names_in_[place], self.coef_[place], self.standard_errors_[place])
            for place in self._places()
        ]
        caption = f"Per unit of each column, with {100 * self.confidence_level:g} % intervals.{self._selection()}"
        names, values, low, high = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
        return Forest("Hazard ratios of all sites", caption, "model", "hazard ratio", names, values, low, high, 0, 1.0)

    def _places(self) -> list[int]:
        """Return the places of the first columns that have a hazard ratio, in the order of the study."""
        bases = self._bases
        return [place for place, name in enumerate(self.feature_names_in_) if name not in bases][:MAX_ROWS]

    def _selection(self) -> str:
        n_columns, curved = len(self.feature_names_in_), dict.fromkeys(self._bases.values())
        text = f" The effect of {', '.join(curved)} is a curve." if curved else ""
        return f" The first {MAX_ROWS} of {n_columns} columns.{text}" if n_columns > MAX_ROWS else text

    def _table_of_tests(self) -> Table:
        caption, tests = "Global tests of the coefficients", dict(self.tests_)
        proportional = self._proportionality()
        if proportional:
            caption += (
                ", and tests of proportional hazards by Grambsch and Therneau (small p-values speak against it): "
                f"{proportional['global'].name}"
            )
            tests["proportional hazards, all columns"] = proportional["global"]
            names = self.feature_names_in_[:MAX_ROWS]
            tests |= {f"proportional hazards, {name}": proportional[name] for name in names if name in proportional}
        elif self._why_not_tested():
            caption += f"; proportional hazards were not tested{self._why_not_tested()}"
        columns = ["test", "chi-square", "degrees of freedom", "p-value"]
        return Table("Tests", f"{caption}.", "model", columns, rows_of_tests(tests))

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
