"""Elastic net with the penalty chosen by cross-validation within the sites."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Applicable, Integer, OneOf, ParameterRanges, Real, Where
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.likelihood.newton import MASKED_TOL
from multicentre.regression.estimator import FedGLM
from multicentre.regression.maths import Family, Link, to_units
from multicentre.regression.path.rounds import Path, PathPlan, fit_path
from multicentre.regression.path.site import MAX_FOLDS, PathSite
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.rounds import Plan, Prepared

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Penalties of a path: more would not change the choice, as neighbours differ by 7 % with 100.
MAX_ALPHAS = 1000


def _is_penalties(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and 1 <= value <= MAX_ALPHAS
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or not 0 < len(value) <= MAX_ALPHAS:
        return False
    return all(Real(0, open="low").accepts(each) for each in value)


def _penalties_in_force(alphas: int | Sequence[float]) -> str:
    return f"{alphas} penalties" if isinstance(alphas, int) else f"penalties {', '.join(f'{one:g}' for one in alphas)}"


class FedGLMCV(FedGLM):
    """Federated elastic net, with the penalty chosen by cross-validation.

    Each site divides its patients into folds. For each penalty, the model is fitted to the patients of all sites
    outside a fold, and its deviance is summed over the patients of the fold. All penalties and folds are fitted
    together: with one call for gaussian outcomes, with a few calls otherwise. At the end the model is fitted to all
    patients with the chosen penalty. Sites hold ``TableData``.

    Parameters
    ----------
    family : {"gaussian", "binomial", "poisson", "gamma"}, default "gaussian"
        Distribution of the outcome, see :class:`FedGLM`.
    link : {"identity", "logit", "probit", "cloglog", "log"}, optional
        Link, see :class:`FedGLM`.
    formula : str, optional
        Covariates, see :class:`FedGLM`; by default all columns.
    offset : str, optional
        Column that is added to the linear predictor.
    weights : str, optional
        Column of frequency weights, at least 0.
    l1_ratio : float, default 1.0
        Share of the penalty on absolute coefficients: 0 for ridge, 1 for lasso, between them elastic net.
    alphas : int or sequence of float, default 100
        Number of penalties, or the penalties. Their unit is that of `alpha` in :class:`FedGLM`.
    eps : float, default 1e-3
        Smallest penalty relative to the largest, with which all coefficients are 0 (with ridge only, nearly 0).
    cv : int, default 5
        Number of folds, from 2 to 50. Folds are balanced by class within a site. A site needs as many patients in each
        fold as its policy requires behind a value.
    rule : {"min", "1se"}, default "min"
        Choice of the penalty: that with the lowest mean deviance, or the largest whose mean deviance is within a
        standard error of the lowest.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    seed : int, default 0
        Seed of the folds, which also depend on the data of each site.
    max_iter : int, default 50
        Maximum number of steps of each fit, halvings included.
    tol : float, default 1e-8
        A fit has converged when no coefficient of a standardised covariate changes by more (at least 1e-7 with masked
        sums).

    Attributes
    ----------
    alpha_ : float
        Chosen penalty.
    alpha_min_, alpha_1se_ : float
        Penalties that the two rules choose.
    alphas_ : array of shape (n_alphas,)
        Penalties, decreasing.
    coef_path_ : array of shape (n_alphas, d)
        Coefficients per unit of each covariate, of fits to all patients.
    intercept_path_ : array of shape (n_alphas,)
        Intercepts of these fits.
    fold_deviance_ : array of shape (n_alphas, cv)
        Mean deviance of the patients of each fold under the fit without them.
    mean_deviance_ : array of shape (n_alphas,)
        Mean of `fold_deviance_`, weighted by patients.
    deviance_error_ : array of shape (n_alphas,)
        Standard error of this mean.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or parameters do not fit together.
    DisclosureRefused
        A fold of a site has too few patients.

    Warns
    -----
    ConvergenceWarning
        Fits of the path ended at `max_iter`.

    Notes
    -----
    Other fitted attributes are those of :class:`FedGLM`. There are no standard errors. The penalty per patient is the
    same in fits without a fold, as in scikit-learn and glmnet; covariates are standardised once, over all patients.

    References
    ----------
    .. [1] J. Friedman, T. Hastie, R. Tibshirani (2010), Regularization paths for generalized linear models via
       coordinate descent, Journal of Statistical Software 33(1).

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 4))
    >>> y = 120 + 5 * X[:, 0] + rng.normal(size=600)
    >>> data = mc.data.TableData(X, y, columns=["age", "dose", "height", "sex"], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 600, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedGLMCV(rule="1se").fit(federation)
    >>> [name for name, value in zip(model.feature_names_in_, model.coef_) if value]
    ['age']
    """

    site_part: ClassVar[type[SitePart]] = PathSite
    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("robust errors", "clusters"), "Coefficients of a penalised fit are biased, so that it states no errors"
    )
    model_phrases: ClassVar[Phrases] = {
        "l1_ratio": "elastic net penalty with a share of lasso of {}",
        "alphas": lambda model: _penalties_in_force(model.alphas),
        "eps": "smallest penalty {} of the largest",
        "cv": "chosen by cross-validation ({} folds)",
        "rule": {"min": "the penalty with the smallest loss", "1se": "the largest penalty within one standard error"},
        "seed": "seed {}",
    }
    applicable: ClassVar[Applicable] = {
        name: only
        for name, only in FedGLM.applicable.items()
        if name != "l1_ratio"  # the path chooses the penalty
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        **{
            name: FedGLM.parameter_ranges[name]
            for name in ("link", "formula", "offset", "weights", "l1_ratio", "missing", "max_iter", "tol")
        },
        "family": OneOf("gaussian", "binomial", "poisson", "gamma"),
        "alphas": Where(f"a number from 1 to {MAX_ALPHAS}, or as many positive numbers", _is_penalties),
        "eps": Real(0, 1, open="both"),
        "cv": Integer(2, MAX_FOLDS),
        "rule": OneOf("min", "1se"),
        "seed": Integer(0),
    }
    _PATH: ClassVar[tuple[str, ...]] = (
        "alpha_",
        "alpha_min_",
        "alpha_1se_",
        "alphas_",
        "coef_path_",
        "intercept_path_",
        "fold_deviance_",
        "mean_deviance_",
        "deviance_error_",
    )
    saved_attributes: ClassVar[SavedAttributes] = {**FedGLM.saved_attributes, **dict.fromkeys(_PATH, PLAIN)}
    alpha_: float
    alpha_min_: float
    alpha_1se_: float
    alphas_: Floats
    coef_path_: Floats
    intercept_path_: Floats
    fold_deviance_: Floats
    mean_deviance_: Floats
    deviance_error_: Floats

    def __init__(
        self,
        family: Family = "gaussian",
        *,
        link: Link | None = None,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        l1_ratio: float = 1.0,
        alphas: int | Sequence[float] = 100,
        eps: float = 1e-3,
        cv: int = 5,
        rule: Literal["min", "1se"] = "min",
        missing: RegressionMissing = "complete",
        seed: int = 0,
        max_iter: int = 50,
        tol: float = 1e-8,
    ) -> None:
        super().__init__(
            family,
            link=link,
            formula=formula,
            offset=offset,
            weights=weights,
            alpha=1.0,  # replaced by the chosen penalty; above 0 there are no standard errors
            l1_ratio=l1_ratio,
            missing=missing,
            max_iter=max_iter,
            tol=tol,
        )
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.seed = seed

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        of_moments = (self._family, self._link) == ("gaussian", "identity")
        return super().planned_steps() | {"sum_fold_products" if of_moments else "sum_path_derivatives"}

    def path_frame(self) -> pd.DataFrame:
        """Return a row per penalty: mean deviance, its standard error, and the number of coefficients that are not 0.

        Returns
        -------
        pandas frame
            Index `alpha`, decreasing.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        table = {
            "mean_deviance": self.mean_deviance_,
            "standard_error": self.deviance_error_,
            "n_coefficients": (self.coef_path_ != 0).sum(axis=1),
        }
        return pd.DataFrame(table, index=pd.Index(self.alphas_, name="alpha"))

    def by_site(self) -> None:  # type: ignore[override]
        """Raise ConfigurationError: fits with penalties have no standard errors, so that sites cannot be combined."""
        raise ConfigurationError(
            "fits of single sites must be without a penalty; got FedGLMCV",
            where="by_site",
            hint="Use FedGLM with alpha=0.",
        )

    def _plan(self, session: Session, agreed: Prepared) -> Plan:
        plan = super()._plan(session, agreed)
        alphas = int(self.alphas) if isinstance(self.alphas, int) else np.asarray(self.alphas, dtype=np.float64)
        options = float(self.eps), float(self.l1_ratio), int(self.cv), int(self.seed)
        tol = max(plan.tol, MASKED_TOL) if plan.masked else plan.tol
        path = fit_path(session, agreed, PathPlan(alphas, *options, plan.max_iter, tol, plan.masked))
        self._set_path(agreed, path)
        if not path.converged:
            warnings.warn(
                f"fits of the path ended at max_iter={self.max_iter} before they converged. Use larger penalties.",
                ConvergenceWarning,
                stacklevel=5,
            )
        ridge, lasso = agreed.penalties(self.alpha_, float(self.l1_ratio))
        return replace(plan, alpha=ridge, lasso=lasso)

    def _set_path(self, agreed: Prepared, path: Path) -> None:
        units = path.coefficients @ to_units(agreed.centre.centre, agreed.spread, agreed.coefficient_scale).T
        units[:, 0] += agreed.shift
        self.alphas_, self.intercept_path_, self.coef_path_ = path.alphas, units[:, 0], units[:, 1:]
        weights = path.fold_weights
        self.fold_deviance_ = path.held_deviance * agreed.scale**2 / weights
        self.mean_deviance_ = self.fold_deviance_ @ weights / weights.sum()
        squares = np.square(self.fold_deviance_ - self.mean_deviance_[:, None]) @ weights / weights.sum()
        self.deviance_error_ = np.sqrt(squares / (len(weights) - 1))
        best = int(np.argmin(self.mean_deviance_))
        limit = self.mean_deviance_[best] + self.deviance_error_[best]
        self.alpha_min_ = float(path.alphas[best])
        self.alpha_1se_ = float(path.alphas[int(np.argmax(self.mean_deviance_ <= limit))])
        self.alpha_ = self.alpha_min_ if self.rule == "min" else self.alpha_1se_
