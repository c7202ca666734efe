"""Results of a fitted generalised linear model: coefficients, tests, predictions and marginal effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.steps import A, P, R, Step
from multicentre.errors import ConfigurationError, DataError, QuorumLost
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Table
from multicentre.estimator.parameters import OneOf, check_parameters
from multicentre.estimator.presentation import frame_of_tests, number_or_none, rows_of_tests
from multicentre.estimator.saved import PLAIN, SAVED_TESTS, Arrays, SavedAttributes
from multicentre.estimator.site_estimates import SiteEstimates, coefficients_by_site
from multicentre.regression import messages
from multicentre.regression.coefficients import (
    INTERCEPT,
    MAX_ROWS,
    RATIOS,
    SAVED_NUMBER,
    HasCoefficients,
)
from multicentre.regression.maths import (
    DISPERSED,
    LINKS,
    Family,
    Link,
    predicted_mean,
    quantile,
    unit_deviances,
)
from multicentre.regression.weighting import HasRegressionWeights

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


MODEL_NAMES: Mapping[tuple[Family, Link], str] = {
    ("gaussian", "identity"): "Linear regression",
    ("binomial", "logit"): "Logistic regression",
    ("binomial", "probit"): "Probit regression",
    ("poisson", "log"): "Poisson regression",
    ("negative_binomial", "log"): "Negative binomial regression",
}


class RegressionResults(HasRegressionWeights, HasCoefficients, FederatedEstimator):
    """Fitted generalised linear model.

    Attributes
    ----------
    model_ : LinearModel
        Columns and coefficients, from which predictions follow.
    scales_ : Scales
        Scales that the sites shared during the fit.
    coef_ : array of shape (d,)
        Coefficients per unit of each of the d covariates.
    intercept_ : float
        Intercept; with ``site_effects="fixed"`` the mean of the sites' intercepts over patients.
    covariance_ : array of shape (d + 1, d + 1)
        Covariance of intercept and coefficients; NaN with ``alpha`` above 0.
    standard_errors_ : array of shape (d + 1,)
        Standard errors of intercept and coefficients, of the kind that `errors` selects; NaN with ``alpha`` above 0,
        after rounds that did not converge, and for coefficients that grow without bound.
    p_values_ : array of shape (d + 1,)
        Two-sided Wald tests, by t distributions if the dispersion is estimated.
    intervals_ : array of shape (d + 1, 2)
        Lower and upper end of the intervals at `confidence_level`.
    dispersion_ : float
        Pearson statistic divided by the residual degrees of freedom for gaussian and gamma outcomes, 1 otherwise. For
        gaussian outcomes it is the residual variance.
    deviance_, null_deviance_ : float
        Deviance of the fit, and of a model with only an intercept (and the offset); with ``site_effects="fixed"`` with
        only the sites' intercepts.
    log_likelihood_ : float
        Log-likelihood without the penalty; NaN with probability weights.
    aic_, bic_ : float
        Akaike's and Schwarz's criterion. The dispersion of gaussian outcomes is not counted as a parameter. NaN with
        ``alpha`` above 0 and with probability weights.
    tests_ : dict of str to TestResult
        Tests of the hypothesis that all coefficients except the intercept are 0: "wald", and with model-based errors
        "likelihood_ratio" and, without an offset and effects of sites, "score". Empty with ``alpha`` above 0.
    n_patients_ : int
        Patients of the fit.
    residual_freedom_ : float
        Patients (the sum of frequency weights) minus the number of coefficients, intercepts of sites included.
    converged_ : bool
        True if the rounds ended at the maximum of the likelihood.
    feature_names_in_ : tuple of str
        Names of the covariates.
    n_features_in_ : int
        Number of covariates, d.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "mean_deviance": Metric("mean deviance", "lower", "", "twice the log-likelihood lost per patient")
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset(
        {"covariance_", "standard_errors_", "p_values_", "intervals_", "noise_errors_"}
    )
    saved_attributes: ClassVar[SavedAttributes] = {
        **HasCoefficients.saved_attributes,
        **dict.fromkeys(
            (
                "dispersion_",
                "overdispersion_",
                "noise_errors_",
                "n_patients_",
                "residual_freedom_",
                "converged_",
            ),
            PLAIN,
        ),
        **dict.fromkeys(
            (
                "deviance_",
                "null_deviance_",
                "log_likelihood_",
                "aic_",
                "bic_",
                "overdispersion_error_",
                "pearson_dispersion_",
                "cut_share_",
            ),
            SAVED_NUMBER,
        ),
        "tests_": SAVED_TESTS,
    }
    dispersion_: float
    deviance_: float
    null_deviance_: float
    bic_: float
    overdispersion_: float
    residual_freedom_: float
    offset: str | None

    def _model_name(self) -> str:
        name = MODEL_NAMES.get((self._family, self._link), "Generalised linear model")
        return f"{name} (family {self._family}, link {self._link})"

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the size and the fit of the model."""
        from multicentre.estimator.results import with_note

        fit = f"; deviance {self.deviance_:.6g} on {self.residual_freedom_:g} degrees of freedom"
        fit = fit if np.isfinite(self.deviance_) else ""  # a private fit has none
        aic = f", AIC {self.aic_:.6g}" if np.isfinite(self.aic_) else ""
        remark = f"{self.n_patients_:,} patients{fit}{aic}. {self.joint_tests_text()}".rstrip()
        frame = self.with_terms(self.to_frame())
        return with_note(frame, self._remarks(), model=self.describe_model(), remark=remark)

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the tests of all of them together."""
        tests = {"tests": frame_of_tests(self.tests_)} if self.tests_ else {}
        return {"coefficients": self.to_frame(), **tests, "terms": self.term_tests()}

    def by_site(self) -> SiteEstimates:
        """Fit each site of the last fit alone, through the same steps.

        Each sum then describes a single site: it leaves unmasked, the site's guard checks it, and the ledger records
        it. ``mc.analytics.combine`` combines the result.

        Returns
        -------
        SiteEstimates
            Intercept and coefficients by site, without columns of splines and polynomials. They are NaN for a
            covariate in which too few patients of the site differ, which its fit then leaves out, and for a site that
            refuses or whose data do not permit the fit.
            :meth:`~multicentre.estimator.site_estimates.SiteEstimates.reason` returns the reason.

        Raises
        ------
        ConfigurationError
            Knots of a spline follow from the patients, so that each site alone would have other columns.
        """
        check_is_fitted(self, "model_")
        self._check_knots()
        ratio, bases = RATIOS.get(self._link), self._bases
        names = [INTERCEPT, *(name for name in self.feature_names_in_ if name not in bases)]
        if ratio is None:
            return coefficients_by_site(self, names)
        return coefficients_by_site(self, names, scale="log", label=ratio.replace("_", " "))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted mean of each patient; of two classes, the probability of the second.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites, including those of offset and weights if the fit has them.

        Returns
        -------
        array of shape (n,)
        """
        return self._means(X)

    def predict_linear(self, X: Any) -> Floats:
        """Return the linear predictor of each patient, offset included, shape (n,)."""
        return self.model_.linear(self._columns_of(X))

    def predict_interval(self, X: Any, kind: Literal["mean", "patient"] = "mean") -> Floats:
        """Return lower and upper end of an interval at `confidence_level` for each patient, shape (n, 2).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
        kind : {"mean", "patient"}, default "mean"
            Interval of the predicted mean; or of the outcome of a new patient, for gaussian outcomes only.

        Raises
        ------
        ConfigurationError
            `kind` is not one of these, or "patient" for another family.
        DataError
            The fit has no standard errors.
        """
        check_parameters({"kind": kind}, {"kind": OneOf("mean", "patient")})
        if kind == "patient" and (self._family, self._link) != ("gaussian", "identity"):
            raise ConfigurationError(
                "intervals of patients must be of gaussian outcomes with the identity link; "
                f"got {self._family} with {self._link}",
                where="kind",
                hint='Use kind="mean".',
            )
        if np.isnan(self.covariance_).any():
            raise DataError(
                "the fit must have standard errors; it has none",
                where=type(self).__name__,
                hint="Fit with alpha=0, and see the warnings of the fit.",
            )
        rows, offset = self.model_.design(self._columns_of(X))
        predictor = rows @ self.model_.values + offset
        variances = np.einsum("ij,jk,ik->i", rows, self.covariance_, rows)
        variances = variances + (self.dispersion_ if kind == "patient" else 0.0)
        half = quantile(self.confidence_level, self._freedom) * np.sqrt(variances)
        ends = np.column_stack([predictor - half, predictor + half])
        return predicted_mean(self._link, ends)

    def _sum_of_fit(self, step: Step[P, A, R], request: A) -> R:
        """Return a sum over the sites of the fit.

        Raises
        ------
        QuorumLost
            A site of the fit no longer answers.
        """
        session = self.session
        total = session.sum(step, request)
        if lost := sorted(set(session.consortium.sites) - set(session.sites)):
            raise QuorumLost(
                "a sum after a fit must be over all sites of the fit; some no longer answer",
                where=", ".join(lost),
                hint="Fit again without the site, or when it is back.",
            )
        return total

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of coefficients, and a forest plot per unit of each covariate."""
        check_is_fitted(self, "model_")
        level = f"{100 * self.confidence_level:g} % intervals"
        figures: list[Figure] = [self._coefficient_table(level), self.main_figure()]
        figures += self.terms_table()
        figures += [curve for curve in self.effect_figures() if curve.title != figures[1].title]
        return [*figures, self._table_of_tests()] if self.tests_ else figures

    def _coefficient_table(self, level: str) -> Table:
        table, ratio = self.with_terms(self.to_frame()).iloc[:MAX_ROWS], RATIOS.get(self._link)
        parts = ["coefficient", "lower", "upper", "standard_error"]
        if ratio:
            parts = [ratio, f"{ratio}_lower", f"{ratio}_upper", "p_value", "coefficient", "standard_error"]
        else:
            parts += ["p_value"]
        cells = [[name, *map(number_or_none, row)] for name, *row in table[parts].itertuples()]
        names = [part.removeprefix(f"{ratio}_").replace("_", " ") for part in parts]
        caption = f"Per unit of each covariate, with {level}; {self.n_patients_:,} patients."
        if ratio:
            caption += f" A coefficient is the logarithm of {'an' if ratio[0] in 'aeiou' else 'a'} {names[0]};"
            caption += " the standard error is that of the coefficient."
        columns = ["covariate", *("p-value" if name == "p value" else name for name in names)]
        return Table("Coefficients", caption, "model", columns, cells)

    def _table_of_tests(self) -> Table:
        caption = "Tests of the model; the coefficients do not include the intercept."
        columns = ["test", "chi-square", "degrees of freedom", "p-value"]
        return Table("Tests", caption, "model", columns, rows_of_tests(self.tests_))

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the mean deviance of local patients.

        Parameters
        ----------
        data : TableData
            Patients who were not part of the fit.
        labels : None
            Not used, present for API consistency by convention.
        training : None
            Not used, present for API consistency by convention.
        training_labels : None
            Not used, present for API consistency by convention.
        """
        scored = self.leave_out_incomplete(data)
        outcomes, predictor = self._outcomes(scored), self.predict_linear(scored)
        deviances = unit_deviances(self._family, self._link, outcomes, predictor, self.overdispersion_)
        return {"mean_deviance": float(deviances.mean())}

    @property
    def _family(self) -> Family:
        raise NotImplementedError

    @property
    def _link(self) -> Link:
        raise NotImplementedError

    def _at(self) -> messages.At:
        raise NotImplementedError

    @property
    def _freedom(self) -> float | None:
        return self.residual_freedom_ if self._family in DISPERSED else None

    @property
    def predicts(self) -> Literal["classifier", "regressor"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "classifier" if self._family == "binomial" else "regressor"

    def _means(self, X: Any) -> Floats:
        return predicted_mean(self._link, self.predict_linear(X))

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._check_saved()


def default_link(family: Family) -> Link:
    """Return the default link of a family."""
    return LINKS[family][0]
