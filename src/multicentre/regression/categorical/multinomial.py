"""Multinomial regression over several sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.regression.categorical.estimator import CategoricalRegression
from multicentre.regression.categorical.results import Name
from multicentre.regression.coefficients import INTERCEPT

Floats = NDArray[np.float64]


class FedMultinomialRegression(CategoricalRegression):
    """Federated multinomial regression of an outcome with several unordered classes.

    ``log(P(k) / P(first class)) = a_k + x'b_k`` for every class k but the first (baseline-category logit).
    Coefficients, standard errors and tests equal those of the pooled patients, however the patients are split over
    sites. Sites hold ``TableData`` with a class as the outcome.

    Parameters
    ----------
    formula : str, optional
        Covariates, for example ``"ns(age, df=3) * sex"``, with an intercept; by default all columns. See
        :class:`FedGLM`.
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
    coef_ : array of shape (K - 1, d)
        Coefficients per unit of each of the d covariates, a row for each of the K classes but the first.
    intercept_ : array of shape (K - 1,)
        Intercepts.
    standard_errors_ : array of shape (K - 1, d + 1)
        Standard errors of intercepts and coefficients, of the kind that `errors` selects; NaN with ``alpha`` above 0,
        after rounds that did not converge, and for coefficients that grow without bound.
    p_values_ : array of shape (K - 1, d + 1)
        Two-sided Wald tests by normal distributions.
    intervals_ : array of shape (K - 1, d + 1, 2)
        Lower and upper end of the intervals at `confidence_level`.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or parameters do not fit together.
    DataError
        A class has no patient, a covariate is constant, or covariates depend on each other without a penalty.
    SchemaMismatch
        Sites differ in their columns or classes, the outcome is a number, or `weights` or `cluster` is not a column.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        The likelihood rises without bound as a coefficient grows.

    References
    ----------
    .. [1] A. Agresti (2013), Categorical data analysis, third edition, Wiley, section 8.1.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 1))
    >>> y = (X[:, 0] + rng.logistic(size=900) > 0).astype(int) + (rng.random(900) < 0.3)
    >>> data = mc.data.TableData(X, y, columns=["age"], classes=["home", "ward", "hospice"])
    >>> sites = {name: data.take(np.arange(start, 900, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedMultinomialRegression().fit(federation)
    >>> model.coef_.round(1).tolist()
    [[0.5], [0.9]]
    """

    lacks: ClassVar[Mapping[str, str]] = {
        **CategoricalRegression.lacks,
        "offset": "A column would have to be added to the equation of one class, or of all",
    }
    kind: ClassVar[str] = "multinomial"

    @property
    def coef_(self) -> Floats:
        """Coefficients per unit of each covariate, shape (K - 1, d)."""
        check_is_fitted(self, "model_")
        return self.model_.slopes

    @property
    def intercept_(self) -> Floats:
        """Intercepts, shape (K - 1,)."""
        check_is_fitted(self, "model_")
        return self.model_.intercepts

    @property
    def standard_errors_(self) -> Floats:
        """Standard errors, shape (K - 1, d + 1)."""
        return self._by_class(self._errors)

    @property
    def p_values_(self) -> Floats:
        """Two-sided Wald tests, shape (K - 1, d + 1)."""
        return self._by_class(self._p_values)

    @property
    def intervals_(self) -> Floats:
        """Intervals, shape (K - 1, d + 1, 2)."""
        return self._by_class(self._intervals)

    def _by_class(self, values: Floats) -> Floats:
        return values.reshape(len(self.model_.intercepts), -1, *values.shape[1:])

    @property
    def _ratio(self) -> str:
        return "relative_risk_ratio"

    @property
    def _names(self) -> list[Name]:
        columns = (INTERCEPT, *self.feature_names_in_)
        return [(name, column) for name in self.model_.classes[1:] for column in columns]

    def _is_slope(self, label: Name) -> bool:
        return label[1] != INTERCEPT
