"""Federated mixed models: coefficients of all patients, with effects that differ between sites at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Answers, Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.values import GAP_STEPS
from multicentre.estimator.formula import FORMULA
from multicentre.estimator.model_in_force import COMPUTING, Phrases
from multicentre.estimator.parameters import Flag, Integer, OneOf, ParameterRanges, Real, Where
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.estimator.weighting import COLUMN
from multicentre.regression.coefficients import is_perfect, warn_of_rounds
from multicentre.regression.maths import LINKS, Family
from multicentre.regression.messages import Model
from multicentre.regression.mixed import messages
from multicentre.regression.mixed.maths import triangle
from multicentre.regression.mixed.results import MixedResults
from multicentre.regression.mixed.rounds import check_several, effects_of, fit_generalized, fit_linear
from multicentre.regression.mixed.site import GeneralizedMixedSite, LinearMixedSite
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.rounds import Plan, agree

Floats = NDArray[np.float64]
_NAMES = Where(
    "names of columns",
    lambda value: not isinstance(value, str) and all(isinstance(name, str) and bool(name) for name in value),
)
# Variance of the logistic distribution: residual variance of classes on the scale of the logit.
LOGISTIC_VARIANCE = np.pi**2 / 3.0


def slopes_in_force(model: Any) -> str:
    """Return which effects of a site are random."""
    slopes = f" and random slopes of {', '.join(model.slopes)}" if model.slopes else ""
    return f"a random intercept per site{slopes}"


class FedLinearMixedModel(MixedResults):
    """Federated linear mixed model: linear regression with an intercept, and slopes, that differ between sites.

    Sites return products that are weighted for given variances, and the coordinator sees only their sums. Coefficients
    and variances equal those of the pooled patients (R's ``lme4::lmer``), with the site as the grouping factor. Sites
    hold ``TableData`` with numbers as outcomes.

    Parameters
    ----------
    slopes : sequence of str, default ()
        Covariates whose slope differs between sites, in addition to the intercept; with correlations, as
        ``(1 + x | site)`` in R. With a formula, they are columns of it, such as "age" or "stage=II".
    formula : str, optional
        Covariates, for example ``"ns(age, df=3) * sex"``, with an intercept; by default all columns. See
        :class:`FedGLM`.
    offset : str, optional
        Column that is added to the linear predictor, for example a known part of the outcome.
    reml : bool, default True
        Restricted maximum likelihood, which accounts for the estimation of the coefficients; False for maximum
        likelihood, with which likelihoods of fits with different covariates are comparable.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.
    max_iter : int, default 50
        Maximum number of steps, halvings included.
    tol : float, default 1e-8
        The rounds stop when no entry of the scaled Cholesky factor of the variances changes by more (at least 1e-6 with
        masked sums).

    Attributes
    ----------
    residual_variance_ : float
        Variance of the outcome within a site, given the covariates.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or `slopes` are not covariates.
    DataError
        A covariate is constant, covariates depend on each other, or there is one site only.
    SchemaMismatch
        Sites differ in their columns, the outcome is not a number, or `offset` is not a column.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.

    References
    ----------
    .. [1] N. M. Laird, J. H. Ware (1982), Random-effects models for longitudinal data, Biometrics 38, 963-974.
    .. [2] C. Luo et al. (2022), DLMM as a lossless one-shot algorithm for collaborative multi-site distributed linear
       mixed models, Nature Communications 13, 1678.
    .. [3] D. Bates et al. (2015), Fitting linear mixed-effects models using lme4, Journal of Statistical Software
       67(1).

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for site in ("lyon", "oslo", "porto", "turin"):
    ...     X = rng.normal(size=(80, 2))
    ...     y = 3.0 + rng.normal() + 0.5 * X[:, 0] + rng.normal(size=80)
    ...     sites[site] = mc.data.TableData(X, y, columns=["age", "dose"], outcome="number")
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedLinearMixedModel().fit(federation)
    >>> model.coef_.round(1).tolist(), round(model.icc_, 1)
    ([0.6, 0.0], 0.2)
    """

    site_part: ClassVar[type[SitePart]] = LinearMixedSite
    saved_attributes: ClassVar[SavedAttributes] = {**MixedResults.saved_attributes, "residual_variance_": PLAIN}
    model_phrases: ClassVar[Phrases] = {
        "slopes": slopes_in_force,
        "formula": "covariates {}",
        "offset": "offset {}",
        "reml": {True: "restricted maximum likelihood", False: "maximum likelihood"},
        **COMPUTING,
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "slopes": _NAMES,
        "formula": FORMULA,
        "offset": COLUMN,
        "reml": Flag(),
        "missing": OneOf("complete", "indicator", "mean"),
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
    }
    residual_variance_: float

    def __init__(
        self,
        slopes: Sequence[str] = (),
        *,
        formula: str | None = None,
        offset: str | None = None,
        reml: bool = True,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 50,
        tol: float = 1e-8,
    ) -> None:
        self.slopes = slopes
        self.formula = formula
        self.offset = offset
        self.reml = reml
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {"describe", "sum_columns", "sum_products", "sum_candidates", "sum_curvature", "tell_effects"}
        return frozenset(steps | GAP_STEPS | self._formula_steps())

    def _fit(self, session: Session) -> None:
        check_several(session)
        model = Model("gaussian", "identity", self._offset_column, "", "", True)
        agreed = agree(session, model, self.missing, self._parsed)
        self._set_design(agreed)
        fit = fit_linear(session, agreed, self._check_slopes(agreed), plan_of(self, session), restricted=self.reml)
        solution, scale, n_effects = fit.solution, agreed.scale, len(self.effect_names_)
        self.n_patients_, self.n_sites_ = round(fit.n_patients), round(fit.n_sites)
        # On the scale of the rounds the outcomes are about their mean.
        coefficients = solution.coefficients + np.append(agreed.centre.mean / scale, np.zeros(len(agreed.covariates)))
        self._set_model(agreed, coefficients, ("gaussian", "identity"), self._offset_column)
        matrix = self._to_units()
        rounding = session.rounding(LinearMixedSite.sum_curvature, "products")
        exact = is_perfect(solution.variance * fit.n_patients, fit.n_patients, rounding)
        variance = np.nan if exact else solution.variance
        self._infer(variance * matrix @ solution.inverse @ matrix.T, fit.maximum)
        covariance = solution.variance * fit.covariance
        self._set_variances(covariance, solution.variance * self.n_sites_ / self.n_patients_)
        self.residual_variance_ = float(solution.variance * scale**2)
        self.icc_ = float(covariance[0, 0] / (covariance[0, 0] + solution.variance))
        self._test_variances(fit.null_criterion - solution.criterion)
        freedom = fit.n_patients - (len(coefficients) if self.reml else 0)
        units = 2.0 * freedom * np.log(scale) + (2.0 * float(np.log(agreed.spread).sum()) if self.reml else 0.0)
        self.log_likelihood_ = -0.5 * float(solution.criterion + units)
        self.aic_ = 2.0 * (len(coefficients) + n_effects * (n_effects + 1) // 2 + 1) - 2.0 * self.log_likelihood_
        self._request = messages.AtSolution(
            **effects_of(agreed, tuple(self.slopes)),
            covariance=fit.covariance,
            directions=np.zeros_like(fit.covariance),
            coefficients=solution.coefficients,
            variance=solution.variance,
        )
        warn_of_rounds(agreed.names, fit.maximum.diverging[:0], self.converged_, self.max_iter)

    @property
    def _kind(self) -> str:
        return "linear mixed model by " + ("restricted maximum likelihood" if self.reml else "maximum likelihood")

    def _ask_effects(self) -> Answers[messages.OwnEffects]:
        return self.session.ask(LinearMixedSite.tell_effects, self._request, skip_refusals=True)


class FedGLMM(MixedResults):
    """Federated generalised linear mixed model: logistic or Poisson regression with effects that differ between sites.

    Each site integrates its effects out by Laplace's approximation, and the coordinator sees only sums. Estimates equal
    those of R's ``lme4::glmer`` with ``nAGQ = 1``, with the site as the grouping factor. Sites hold ``TableData``.

    Parameters
    ----------
    family : {"binomial", "poisson"}, default "binomial"
        Distribution of the outcome: two classes with logits, or counts with logarithms.
    slopes : sequence of str, default ()
        Covariates whose slope differs between sites, see :class:`FedLinearMixedModel`.
    formula : str, optional
        Covariates, see :class:`FedLinearMixedModel`; also with ``offset(log(days))``.
    offset : str, optional
        Column that is added to the linear predictor, for example the logarithm of the time at risk.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedGLM`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.
    max_iter : int, default 50
        Maximum number of steps, halvings included.
    tol : float, default 1e-8
        The rounds stop when no coefficient of a standardised covariate, and no entry of the Cholesky factor of the
        variances, changes by more (at least 1e-6 with masked sums).

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or `slopes` are not covariates.
    DataError
        Outcomes are not of the family, a covariate is constant, covariates depend on each other, or there is one site
        only.
    SchemaMismatch
        Sites differ in their columns or classes, or `offset` is not a column.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`, for example because covariates separate the outcomes.

    References
    ----------
    .. [1] N. E. Breslow, D. G. Clayton (1993), Approximate inference in generalized linear mixed models, Journal of the
       American Statistical Association 88, 9-25.
    .. [2] D. Bates et al. (2015), Fitting linear mixed-effects models using lme4, Journal of Statistical Software
       67(1).

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for site in ("lyon", "oslo", "porto", "turin"):
    ...     X = rng.normal(size=(80, 2))
    ...     y = rng.random(80) < 1 / (1 + np.exp(-rng.normal() - X[:, 0]))
    ...     sites[site] = mc.data.TableData(X, y.astype(int), columns=["age", "dose"])
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedGLMM("binomial").fit(federation)
    >>> round(float(model.coef_[0]), 1)
    1.5
    """

    site_part: ClassVar[type[SitePart]] = GeneralizedMixedSite
    model_phrases: ClassVar[Phrases] = {
        "family": "family {}",
        "slopes": slopes_in_force,
        "formula": "covariates {}",
        "offset": "offset {}",
        **COMPUTING,
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "family": OneOf("binomial", "poisson"),
        "slopes": _NAMES,
        "formula": FORMULA,
        "offset": COLUMN,
        "missing": OneOf("complete", "indicator", "mean"),
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
    }

    def __init__(
        self,
        family: Literal["binomial", "poisson"] = "binomial",
        *,
        slopes: Sequence[str] = (),
        formula: str | None = None,
        offset: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 50,
        tol: float = 1e-8,
    ) -> None:
        self.family = family
        self.slopes = slopes
        self.formula = formula
        self.offset = offset
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {"describe", "sum_columns", "sum_products", "sum_laplace", "tell_effects"}
        return frozenset(steps | GAP_STEPS | self._formula_steps())

    def _fit(self, session: Session) -> None:
        check_several(session)
        family: Family = self.family
        link = LINKS[family][0]
        model = Model(family, link, self._offset_column, "", "", True)
        agreed = agree(session, model, self.missing, self._parsed)
        self._set_design(agreed)
        slopes = self._check_slopes(agreed)
        fit = fit_generalized(session, agreed, slopes, plan_of(self, session))
        sums, p, size = fit.sums, len(fit.coefficients), 1 + len(slopes)
        self.n_patients_, self.n_sites_ = round(sums.n_patients), round(sums.n_sites)
        self._set_model(agreed, fit.coefficients, (family, link), self._offset_column)
        self._infer(fit.covariance, fit.maximum)
        covariance = fit.factor @ fit.factor.T
        # The inverse of the mean information on the intercept at a site.
        self._set_variances(covariance, self.n_sites_ / max(float(sums.information[0, 0]), 1.0))
        has_scale = family == "binomial"
        self.icc_ = float(covariance[0, 0] / (covariance[0, 0] + LOGISTIC_VARIANCE)) if has_scale else np.nan
        self.log_likelihood_ = float(sums.value + agreed.totals.constant)
        self.aic_ = 2.0 * (p + size * (size + 1) // 2) - 2.0 * self.log_likelihood_
        self._request = messages.AtFactor(
            **effects_of(agreed, slopes), coefficients=fit.coefficients, factor=fit.factor[triangle(size)]
        )
        warn_of_rounds(agreed.names, fit.maximum.diverging[:p], self.converged_, self.max_iter, hint="")

    @property
    def _kind(self) -> str:
        return f"{self.family} mixed model by Laplace's approximation"

    def _ask_effects(self) -> Answers[messages.OwnEffects]:
        return self.session.ask(GeneralizedMixedSite.tell_effects, self._request, skip_refusals=True)


def plan_of(model: Any, session: Session) -> Plan:
    """Return the parameters of an estimator that the rounds use."""
    return Plan(0.0, int(model.max_iter), float(model.tol), session.protection == "masked")
