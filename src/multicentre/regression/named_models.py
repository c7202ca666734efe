"""Generalised linear models by their usual names: linear, logistic and Poisson regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted

from multicentre.data.tabledata import TableData
from multicentre.estimator.base import Metric
from multicentre.estimator.parameters import ParameterRanges
from multicentre.estimator.weighting import Errors, WeightType
from multicentre.regression.estimator import FedGLM
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.site_effects import SiteEffects

Floats = NDArray[np.float64]
# Parameters that all three share with FedGLM.
_SHARED = (
    "formula",
    "offset",
    "weights",
    "weight_type",
    "site_effects",
    "alpha",
    "l1_ratio",
    "errors",
    "cluster",
    "missing",
    "confidence_level",
)
_SHARED_RANGES: ParameterRanges = {name: FedGLM.parameter_ranges[name] for name in _SHARED}


class FedLinearRegression(FedGLM):
    """Federated linear regression: least squares of the pooled patients.

    Parameters
    ----------
    formula : str, optional
        Covariates, see :class:`FedGLM`; by default all columns.
    offset : str, optional
        Column that is added to the prediction, for example a known part of the outcome.
    weights : str, optional
        Column of weights, at least 0.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`, see :class:`FedGLM`.
    site_effects : {"fixed"}, optional
        Intercepts of sites, see :class:`FedGLM`.
    alpha : float, default 0.0
        Penalty, see :class:`FedGLM`; above 0 there are no standard errors.
    l1_ratio : float, default 0.0
        Share of the penalty on absolute coefficients: 0 for ridge, 1 for lasso.
    errors : {"model", "HC0", "HC1", "cluster"}, default "model"
        Standard errors, see :class:`FedGLM`.
    cluster : str, optional
        Column of clusters for ``errors="cluster"``.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.

    Notes
    -----
    Raises, warns and fitted attributes are those of :class:`FedGLM` with ``family="gaussian"``.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = 120 + 5 * X[:, 0] + rng.normal(size=300)
    >>> data = mc.data.TableData(X, y, columns=["age", "dose"], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedLinearRegression().fit(federation)
    >>> model.coef_.round(1).tolist()
    [5.0, 0.0]
    """

    parameter_ranges: ClassVar[ParameterRanges] = _SHARED_RANGES
    metrics: ClassVar[Mapping[str, Metric]] = {
        "rmse": Metric("RMSE", "lower", "", "root of the mean squared error"),
        "r2": Metric("R2", "higher", "", "explained share of the variance of the outcomes"),
    }

    def __init__(
        self,
        *,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        site_effects: SiteEffects | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        errors: Errors = "model",
        cluster: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
    ) -> None:
        super().__init__(
            "gaussian",
            formula=formula,
            offset=offset,
            weights=weights,
            weight_type=weight_type,
            site_effects=site_effects,
            alpha=alpha,
            l1_ratio=l1_ratio,
            errors=errors,
            cluster=cluster,
            missing=missing,
            confidence_level=confidence_level,
        )

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return root mean squared error and explained variance of local patients; parameters as in `FedGLM.assess`."""
        scored = self.leave_out_incomplete(data)
        squares = np.square(self._outcomes(scored) - self.predict(scored))
        spread = float(np.var(self._outcomes(scored)))
        scores = {"rmse": float(np.sqrt(squares.mean()))}
        return scores | ({"r2": 1.0 - float(squares.mean()) / spread} if spread else {})


class FedLogisticRegression(FedGLM):
    """Federated logistic regression: the maximum likelihood fit of the pooled patients.

    Parameters
    ----------
    formula : str, optional
        Covariates, see :class:`FedGLM`; by default all columns.
    offset : str, optional
        Column that is added to the linear predictor.
    weights : str, optional
        Column of weights, at least 0.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`, see :class:`FedGLM`.
    site_effects : {"fixed"}, optional
        Intercepts of sites, see :class:`FedGLM`.
    alpha : float, default 0.0
        Penalty, see :class:`FedGLM`; above 0 there are no standard errors.
    l1_ratio : float, default 0.0
        Share of the penalty on absolute coefficients: 0 for ridge, 1 for lasso.
    errors : {"model", "HC0", "HC1", "cluster"}, default "model"
        Standard errors, see :class:`FedGLM`.
    cluster : str, optional
        Column of clusters for ``errors="cluster"``.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.

    Attributes
    ----------
    classes_ : array of shape (2,)
        Classes; probabilities and odds ratios are of the second.

    Notes
    -----
    Raises, warns and other fitted attributes are those of :class:`FedGLM` with ``family="binomial"``.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2))
    >>> died = rng.random(600) < 1 / (1 + np.exp(1 - X[:, 0]))
    >>> data = mc.data.TableData(X, died.astype(int), columns=["age", "dose"], classes=["alive", "dead"])
    >>> sites = {name: data.take(np.arange(start, 600, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedLogisticRegression().fit(federation)
    >>> model.coef_.round(1).tolist(), model.predict(X[:2]).tolist()
    ([1.0, 0.0], ['alive', 'alive'])
    """

    parameter_ranges: ClassVar[ParameterRanges] = _SHARED_RANGES
    metrics: ClassVar[Mapping[str, Metric]] = {
        "log_loss": Metric("log loss", "lower", "", "mean negative log-likelihood per patient"),
        "auc": Metric("AUC", "higher", "", "share of pairs of both classes with probabilities in the right order"),
    }

    def __init__(
        self,
        *,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        site_effects: SiteEffects | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        errors: Errors = "model",
        cluster: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
    ) -> None:
        super().__init__(
            "binomial",
            formula=formula,
            offset=offset,
            weights=weights,
            weight_type=weight_type,
            site_effects=site_effects,
            alpha=alpha,
            l1_ratio=l1_ratio,
            errors=errors,
            cluster=cluster,
            missing=missing,
            confidence_level=confidence_level,
        )

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes, shape (2,)."""
        check_is_fitted(self, "model_")
        names = self.model_.classes
        return np.arange(2) if names == ("0", "1") else np.array(names)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (n, 2); X as in :meth:`predict`."""
        second = self._means(X)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each patient.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites, including those of offset and weights if the fit has them.

        Returns
        -------
        array of shape (n,)
        """
        return np.asarray(self.classes_[(self._means(X) > 0.5).astype(np.int64)])

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return log loss and area under the curve of local patients; parameters as in `FedGLM.assess`."""
        scored: TableData = self.leave_out_incomplete(data)
        outcomes, predictor = self._outcomes(scored), self.predict_linear(scored)
        scores = {"log_loss": float(np.logaddexp(0.0, np.where(outcomes == 1, -predictor, predictor)).mean())}
        return scores | ({"auc": float(roc_auc_score(outcomes, predictor))} if 0 < outcomes.mean() < 1 else {})


class FedPoissonRegression(FedGLM):
    """Federated Poisson regression of counts, with rate ratios.

    Parameters
    ----------
    formula : str, optional
        Covariates, see :class:`FedGLM`; by default all columns.
    offset : str, optional
        Column that is added to the linear predictor: the logarithm of the time at risk.
    weights : str, optional
        Column of weights, at least 0.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`, see :class:`FedGLM`.
    site_effects : {"fixed"}, optional
        Intercepts of sites, see :class:`FedGLM`.
    alpha : float, default 0.0
        Penalty, see :class:`FedGLM`; above 0 there are no standard errors.
    l1_ratio : float, default 0.0
        Share of the penalty on absolute coefficients: 0 for ridge, 1 for lasso.
    errors : {"model", "HC0", "HC1", "cluster"}, default "model"
        Standard errors, see :class:`FedGLM`.
    cluster : str, optional
        Column of clusters for ``errors="cluster"``.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.

    Notes
    -----
    Raises, warns and fitted attributes are those of :class:`FedGLM` with ``family="poisson"``.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=600), np.log(rng.uniform(0.5, 3.0, 600))])
    >>> visits = rng.poisson(np.exp(0.5 * X[:, 0] + X[:, 1]))
    >>> data = mc.data.TableData(X, visits, columns=["age", "log_years"], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 600, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedPoissonRegression(offset="log_years").fit(federation)
    >>> model.coef_.round(1).tolist()
    [0.5]
    """

    parameter_ranges: ClassVar[ParameterRanges] = _SHARED_RANGES

    def __init__(
        self,
        *,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        site_effects: SiteEffects | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        errors: Errors = "model",
        cluster: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
    ) -> None:
        super().__init__(
            "poisson",
            formula=formula,
            offset=offset,
            weights=weights,
            weight_type=weight_type,
            site_effects=site_effects,
            alpha=alpha,
            l1_ratio=l1_ratio,
            errors=errors,
            cluster=cluster,
            missing=missing,
            confidence_level=confidence_level,
        )
