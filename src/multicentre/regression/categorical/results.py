"""Results of multinomial and ordinal regression: parameters, tests and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.tabledata import TableData
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.presentation import effect_text, frame_of_tests, number_or_none
from multicentre.estimator.saved import PLAIN, SAVED_TESTS, Arrays, SavedAttributes, saved_message
from multicentre.estimator.site_estimates import SiteEstimates, coefficients_by_site, column_text
from multicentre.estimator.terms import Estimates
from multicentre.regression.categorical.maths import SMALLEST
from multicentre.regression.categorical.model import CategoricalModel
from multicentre.regression.coefficients import MAX_ROWS, SAVED_NUMBER
from multicentre.regression.maths import p_values, quantile
from multicentre.regression.weighting import HasRegressionWeights
from multicentre.statistics.chi_square import TestResult

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Name = str | tuple[str, str]


class CategoricalResults(HasRegressionWeights, FederatedEstimator):
    """Fitted multinomial or ordinal model.

    Attributes
    ----------
    model_ : CategoricalModel
        Columns, classes and parameters, from which predictions follow.
    spread_ : array of shape (d,)
        Standard deviation of every covariate over all sites.
    covariance_ : array of shape (q, q)
        Covariance of the q parameters, in the order of :meth:`to_frame`; NaN with ``alpha`` above 0.
    log_likelihood_, null_log_likelihood_ : float
        Log-likelihood of the fit without the penalty, and of a model without covariates (with the offset); NaN with
        probability weights.
    aic_, bic_ : float
        Akaike's and Schwarz's criterion; NaN with ``alpha`` above 0 and with probability weights.
    tests_ : dict of str to TestResult
        Tests of the hypothesis that all coefficients are 0: "wald", and with model-based errors "likelihood_ratio" and,
        without an offset, "score". Empty with ``alpha`` above 0.
    n_patients_ : int
        Patients of the fit.
    class_counts_ : array of int, shape (K,)
        Patients of each class.
    converged_ : bool
        True if the rounds ended at the maximum of the likelihood.
    feature_names_in_ : tuple of str
        Names of the covariates.
    n_features_in_ : int
        Number of covariates, d.
    classes_ : array of shape (K,)
        Classes, in the order of the data.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "log_loss": Metric("log loss", "lower", "", "mean negative log-likelihood per patient"),
        "accuracy": Metric("accuracy", "higher", "", "share of patients whose most probable class is theirs"),
    }
    lacks: ClassVar[Mapping[str, str]] = {
        "penalty by cross-validation": "Not implemented yet; cross_validate compares stated penalties",
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"covariance_"})
    saved_attributes: ClassVar[SavedAttributes] = {
        **HasRegressionWeights.saved_attributes,
        "model_": saved_message(CategoricalModel),
        **dict.fromkeys(
            (
                "spread_",
                "covariance_",
                "n_patients_",
                "class_counts_",
                "converged_",
            ),
            PLAIN,
        ),
        **dict.fromkeys(("log_likelihood_", "null_log_likelihood_", "aic_", "bic_"), SAVED_NUMBER),
        "tests_": SAVED_TESTS,
    }
    kind: ClassVar[str]
    model_: CategoricalModel
    spread_: Floats
    covariance_: Floats
    log_likelihood_: float
    null_log_likelihood_: float
    aic_: float
    bic_: float
    tests_: dict[str, TestResult]
    n_patients_: int
    class_counts_: NDArray[np.int64]
    converged_: bool
    confidence_level: float

    @property
    def predicts(self) -> Literal["classifier"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "classifier"

    @property
    def _link(self) -> str:
        return str(getattr(self, "link", "logit"))

    @property
    def _ratio(self) -> str:
        """Name of exponentiated coefficients; empty if they have none."""
        raise NotImplementedError

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes, shape (K,)."""
        check_is_fitted(self, "model_")
        names = self.model_.classes
        numbers = tuple(map(str, range(len(names))))
        return np.arange(len(names)) if names == numbers else np.array(names)

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return self.model_.covariates

    @property
    def n_features_in_(self) -> int:
        """Number of covariates."""
        return len(self.model_.covariates)

    @property
    def _names(self) -> list[Name]:
        """Labels of the parameters."""
        raise NotImplementedError

    @property
    def _columns(self) -> list[str]:
        """Covariate, intercept or threshold of each parameter."""
        return [label if isinstance(label, str) else label[1] for label in self._names]

    @property
    def _errors(self) -> Floats:
        check_is_fitted(self, "model_")
        return np.asarray(np.sqrt(np.diagonal(self.covariance_)), dtype=np.float64)

    @property
    def _p_values(self) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):  # standard errors of 0
            return p_values(self.model_.parameters / self._errors, None)

    @property
    def _intervals(self) -> Floats:
        values, half = self.model_.parameters, quantile(self.confidence_level, None) * self._errors
        return np.column_stack([values - half, values + half])

    def to_frame(self) -> pd.DataFrame:
        """Return a row per parameter.

        Columns: coefficient, standard error, limits of the interval, exponentiated coefficient with its limits (except
        with a probit link), and p-value. Columns of splines and polynomials have no exponentiated coefficient, because
        none of them changes alone; see :meth:`term_tests`.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        values, (lower, upper) = self.model_.parameters, self._intervals.T
        table = {"coefficient": values, "standard_error": self._errors, "lower": lower, "upper": upper}
        if ratio := self._ratio:
            with np.errstate(over="ignore"):
                limits = {f"{ratio}_lower": np.exp(lower), f"{ratio}_upper": np.exp(upper)}
                table |= {ratio: np.exp(values), **limits}
            # Thresholds are not ratios.
            are_thresholds = np.array([label not in self.feature_names_in_ for label in self._columns])
            without = np.isin(self._columns, [*self._bases]) | (are_thresholds & (len(self.model_.slopes) == 1))
            for name in (ratio, *limits):
                table[name] = np.where(without, np.nan, table[name])
        table["p_value"] = self._p_values
        index: Any = self._names
        if isinstance(index[0], tuple):
            index = pd.MultiIndex.from_tuples(index, names=["class", "covariate"])
        return pd.DataFrame(table, index=index)

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the size and the fit of the model."""
        from multicentre.estimator.results import with_note

        fit = f"; log-likelihood {self.log_likelihood_:.6g}" if self._has_likelihood else ""
        fit += f", AIC {self.aic_:.6g}" if np.isfinite(self.aic_) else ""
        size = f"{self.kind}, link {self._link}; {self.n_patients_:,} patients"
        remark = f"{size}{fit}. {self.joint_tests_text()}".rstrip()
        return with_note(self.to_frame(), self._remarks(), model=self.describe_model(), remark=remark)

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the tests of the model."""
        tests = {"tests": frame_of_tests(self.tests_)} if self.tests_ else {}
        return {"coefficients": self.to_frame(), **tests, "terms": self.term_tests()}

    def answer(self) -> str:
        """Return the effect of the exposure (the first covariate by default), with its interval and p-value."""
        bases = self._bases
        rows = list(dict.fromkeys(bases.get(name, name) for name in self.feature_names_in_))
        if rows and (by_term := self._answer_by_term(rows)):
            return f"{by_term}."
        effects = self._effects()
        place = self.first_effect([name.partition(", ")[0] for name, *_ in effects])
        name, estimate, lower, upper, p_value = effects[place]
        return effect_text(
            (self._ratio or "coefficient").replace("_", " "),
            (name, estimate, lower, upper),
            p_value,
            self.confidence_level,
            [*self.feature_names_in_, name],
        )

    def _effects(self, *, of_bases: bool = False) -> list[tuple[str, float, float, float, float]]:
        """Return name, ratio or coefficient, its limits and its p-value for the slopes of, or not of, curves."""
        ratio = "" if of_bases else self._ratio
        columns = [ratio, f"{ratio}_lower", f"{ratio}_upper"] if ratio else ["coefficient", "lower", "upper"]
        frame, bases = self.to_frame(), self._bases
        rows = []
        for label, values in zip(self._names, frame[[*columns, "p_value"]].to_numpy(np.float64).tolist(), strict=True):
            column = label if isinstance(label, str) else label[1]
            if self._is_slope(label) and (column in bases) == of_bases:
                name = label if isinstance(label, str) else f"{label[1]}, {label[0]} against {self.model_.classes[0]}"
                rows.append((name, *values))
        return rows

    def _is_slope(self, label: Name) -> bool:
        raise NotImplementedError

    def main_figure(self) -> Figure:
        """Return the forest plot, per unit of each covariate; without such covariates of the columns of curves."""
        check_is_fitted(self, "model_")
        effects, terms, ratio = self._effects(), dict.fromkeys(self._bases.values()), self._ratio
        if not effects:
            effects, ratio = self._effects(of_bases=True), ""
        effects, label = effects[:MAX_ROWS], ratio.replace("_", " ") or "coefficient"
        estimates, lower, upper = (
            [number_or_none(value) for value in column] for column in list(zip(*effects, strict=True))[1:4]
        )
        caption = f"Per unit of each covariate, with {100 * self.confidence_level:g} % intervals."
        caption += f" The test of {', '.join(terms)} is joint." if terms else ""
        title = f"{label[0].upper()}{label[1:]}s of all sites"
        names = [effect[0] for effect in effects]
        return Forest(title, caption, "model", label, names, estimates, lower, upper, 0, 1.0 if ratio else 0.0)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of coefficients, a forest plot and the tests of terms."""
        table = self.to_frame()
        names = [column_text(label) for label in self._names]
        cells = [
            [name, *map(number_or_none, row)]
            for name, row in zip(names[:MAX_ROWS], table.to_numpy(np.float64).tolist(), strict=False)
        ]
        level = f"{100 * self.confidence_level:g} % intervals"
        caption = f"Per unit of each covariate, with {level}; {self.n_patients_:,} patients."
        columns = ["covariate", *(name.replace("_", " ") for name in table.columns)]
        return [Table("Coefficients", caption, "model", columns, cells), self.main_figure(), *self.terms_table()]

    def _estimates(self) -> Estimates:
        names = [column if column in self.feature_names_in_ else "" for column in self._columns]
        return Estimates(names, self.model_.parameters, self.covariance_)

    def by_site(self) -> SiteEstimates:
        """Fit each site of the last fit alone, through the same steps.

        Each sum then describes a single site: it leaves unmasked, the site's guard checks it, and the ledger records
        it. ``mc.analytics.combine`` combines the result.

        Returns
        -------
        SiteEstimates
            Parameters by site, without columns of splines and polynomials. They are NaN for a covariate in which too
            few patients of the site differ, which its fit then leaves out, and for a site that refuses or whose data do
            not permit the fit.
            :meth:`~multicentre.estimator.site_estimates.SiteEstimates.reason` returns the reason.

        Raises
        ------
        ConfigurationError
            Knots of a spline follow from the patients, so that each site alone would have other columns.
        """
        check_is_fitted(self, "model_")
        self._check_knots()
        pairs, bases = zip(self._names, self._columns, strict=True), self._bases
        names: Any = [name for name, column in pairs if column not in bases]
        if not self._ratio:
            return coefficients_by_site(self, names)
        return coefficients_by_site(self, names, scale="log", label=self._ratio.replace("_", " "))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (n, K); X as in :meth:`predict`."""
        return self.model_.probabilities(self._columns_of(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each patient.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites.

        Returns
        -------
        array of shape (n,)
        """
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, data: TableData, y: None = None) -> float:
        """Return the share of patients whose most probable class is theirs.

        After a fit to complete records, incomplete records are left out, with a warning.

        Parameters
        ----------
        data : TableData
        y : None
            Not used, present for API consistency by convention.
        """
        check_is_fitted(self, "model_")
        return self.assess(data)["accuracy"]

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return log loss and accuracy of local patients.

        Parameters
        ----------
        data : TableData
            Patients who were not part of the fit.
        labels, training, training_labels : None
            Not used, present for API consistency by convention.
        """
        scored: TableData = self.leave_out_incomplete(data)
        scored.require_classes(self.model_.classes)
        shares = self.predict_proba(scored)
        chosen = np.take_along_axis(shares, scored.y[:, None].astype(np.int64), axis=1)
        return {
            "log_loss": float(-np.log(np.maximum(chosen, SMALLEST)).mean()),
            "accuracy": float((shares.argmax(axis=1) == scored.y).mean()),
        }

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._check_saved()
