"""Ordinal regression over several sites."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.estimator.parameters import OneOf, ParameterRanges
from multicentre.estimator.presentation import p_text
from multicentre.estimator.weighting import COLUMN, Errors, WeightType
from multicentre.regression.categorical import rounds
from multicentre.regression.categorical.estimator import SingleIndexRegression
from multicentre.regression.categorical.maths import OrdinalLink
from multicentre.regression.categorical.results import Name
from multicentre.regression.categorical.rounds import Fit, Prepared
from multicentre.regression.patients import RegressionMissing
from multicentre.statistics.chi_square import TestResult, chi_square_test

Floats = NDArray[np.float64]
# Level below which the printed results say that coefficients differ: the usual level of a test.
REJECTED = 0.05


class FedOrdinalRegression(SingleIndexRegression):
    """Federated ordinal regression of an outcome with several ordered classes: the proportional odds model.

    ``P(y <= k) = F(a_k - x'b)`` with one coefficient per covariate and increasing thresholds ``a_k``. A positive
    coefficient raises the probability of higher classes. The order of the classes is that of the data. Coefficients,
    standard errors and tests equal those of the pooled patients, however the patients are split over sites. Sites hold
    ``TableData`` with a class as the outcome.

    Parameters
    ----------
    link : {"logit", "probit"}, default "logit"
        Distribution function F: logistic, with odds ratios, or normal.
    formula : str, optional
        Covariates, for example ``"ns(age, df=3) * sex"``, with an intercept; by default all columns. See
        :class:`FedGLM`.
    offset : str, optional
        Column that is added to the linear predictor x'b.
    weights : str, optional
        Column of weights, at least 0.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`: a row stands for that many patients, or is weighted by the inverse of its probability of
        selection. Errors of probability weights must be robust.
    alpha : float, default 0.0
        Size of the penalty ``alpha * ((1 - l1_ratio) / 2 * sum(b**2) + l1_ratio * sum(abs(b)))`` on the coefficients b
        of standardised covariates. Above 0 there are no standard errors, because they would ignore the bias.
    l1_ratio : float, default 0.0
        Share of the lasso in the penalty: 0 for ridge, 1 for the lasso, which sets coefficients to 0.
    errors : {"model", "HC0", "HC1", "cluster"}, default "model"
        Standard errors: from the information; by the sandwich estimator, without or with the factor n / (n - q) for q
        parameters; or from scores summed within clusters, with the factor G / (G - 1) (n - 1) / (n - q) for G clusters.
    cluster : str, optional
        Column of clusters for ``errors="cluster"``, numbered within each site. Equal numbers at two sites are two
        clusters.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries: leave incomplete patients out; fill with the mean over sites and add an indicator
        column; or fill only, which biases coefficients and shortens their standard errors.
    confidence_level : float, default 0.95
        Confidence level of the intervals.
    max_iter : int, default 25
        Maximum number of steps, halvings included.
    tol : float, default 1e-8
        The rounds stop when no coefficient of a standardised covariate changes by more (at least 1e-7 with masked
        sums).

    Attributes
    ----------
    thresholds_ : array of shape (K - 1,)
        Thresholds between the K classes, increasing.
    coef_ : array of shape (d,)
        Coefficients per unit of each of the d covariates.
    standard_errors_ : array of shape (K - 1 + d,)
        Standard errors of thresholds and coefficients, of the kind that `errors` selects ("model": from the observed
        information); NaN with ``alpha`` above 0, after rounds that did not converge, and for coefficients that grow
        without bound.
    p_values_ : array of shape (K - 1 + d,)
        Two-sided Wald tests by normal distributions.
    intervals_ : array of shape (K - 1 + d, 2)
        Lower and upper end of the intervals at `confidence_level`.
    equal_slopes_ : TestResult or None
        Score test of equal coefficients at all thresholds (proportional odds with a logit link) against coefficients
        for each threshold, also in `tests_`; None with two classes, and without model-based standard errors.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or parameters do not fit together.
    DataError
        A class has no patient, a covariate is constant, or covariates depend on each other without a penalty.
    SchemaMismatch
        Sites differ in their columns or classes, the outcome is a number, or `offset`, `weights` or `cluster` is not a
        column.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        The likelihood rises without bound as a coefficient grows.

    References
    ----------
    .. [1] P. McCullagh (1980), Regression models for ordinal data, Journal of the Royal Statistical Society B 42,
       109-142.
    .. [2] B. Peterson, F. E. Harrell (1990), Partial proportional odds models for ordinal response variables, Applied
       Statistics 39, 205-217.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 2))
    >>> y = np.digitize(X[:, 0] + rng.logistic(size=900), [-1.0, 1.0])
    >>> data = mc.data.TableData(X, y, columns=["age", "dose"], classes=["none", "mild", "severe"])
    >>> sites = {name: data.take(np.arange(start, 900, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedOrdinalRegression().fit(federation)
    >>> round(float(model.coef_[0]), 1)
    1.0
    """

    kind: ClassVar[str] = "ordinal"
    parameter_ranges: ClassVar[ParameterRanges] = {
        "link": OneOf("logit", "probit"),
        "offset": COLUMN,
        **SingleIndexRegression.parameter_ranges,
    }

    def __init__(
        self,
        *,
        link: OrdinalLink = "logit",
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        errors: Errors = "model",
        cluster: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 25,
        tol: float = 1e-8,
    ) -> None:
        self.link = link
        self.formula = formula
        self.offset = offset
        self.weights = weights
        self.weight_type = weight_type
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.errors = errors
        self.cluster = cluster
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def _set_tests(self, session: Session, agreed: Prepared, fit: Fit) -> None:
        super()._set_tests(session, agreed, fit)
        k, d = len(agreed.classes) - 1, len(agreed.covariates)
        if not self.tests_ or self.errors != "model" or k < 2:
            return  # the statistic follows the distribution of the test only if patients are independent
        statistic = rounds.test_equal_slopes(session, agreed, fit.parameters)
        self.tests_["equal_slopes"] = chi_square_test(statistic, (k - 1) * d)

    def _remarks(self) -> str:
        """Return what a reader of the results must know: also the test of equal coefficients at all thresholds."""
        remarks, test = super()._remarks(), self.tests_.get("equal_slopes")
        if test is None:
            return remarks
        verdict = ""
        if test.p_value < REJECTED:
            verdict = ": one coefficient per covariate describes the thresholds only on average"
        return f"Score test of equal coefficients at all thresholds: {p_text(test.p_value)}{verdict}. {remarks}"

    @property
    def equal_slopes_(self) -> TestResult | None:
        """Score test of equal coefficients at all thresholds."""
        check_is_fitted(self, "model_")
        return self.tests_.get("equal_slopes")

    @property
    def thresholds_(self) -> Floats:
        """Thresholds, shape (K - 1,)."""
        check_is_fitted(self, "model_")
        return self.model_.intercepts

    @property
    def _ratio(self) -> str:
        return "odds_ratio" if self.link == "logit" else ""

    @property
    def _names(self) -> list[Name]:
        classes = self.model_.classes
        thresholds = [f"{low} | {high}" for low, high in pairwise(classes)]
        return [*thresholds, *self.feature_names_in_]
