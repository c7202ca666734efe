"""Federated generalised linear models: the fit of the pooled patients from sums over sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.values import GAP_STEPS
from multicentre.data.rare_columns import RARE_STEPS
from multicentre.errors import ConfigurationError
from multicentre.estimator.formula import FORMULA
from multicentre.estimator.model_in_force import COMPUTING, Phrases
from multicentre.estimator.parameters import Applicable, Integer, OneOf, Only, ParameterRanges, Real
from multicentre.estimator.penalty import PENALTY_APPLICABLE, PENALTY_PHRASES, PENALTY_RANGES
from multicentre.estimator.weighting import (
    COLUMN,
    WEIGHTING_APPLICABLE,
    WEIGHTING_PHRASES,
    WEIGHTING_RANGES,
    Errors,
    WeightType,
)
from multicentre.likelihood.sandwich import small_sample_factor
from multicentre.likelihood.separation import covariance_of
from multicentre.regression import messages, rounds
from multicentre.regression.coefficients import Scales, is_perfect, warn_of_rounds
from multicentre.regression.count_rounds import fit_with_null
from multicentre.regression.linear_model import LinearModel
from multicentre.regression.marginal_effects import HasMarginalEffects
from multicentre.regression.maths import (
    DISPERSED,
    LINKS,
    Family,
    Link,
    log_likelihood,
    p_values,
    quantile,
    to_units,
    variance,
)
from multicentre.regression.overdispersion import HasOverdispersion
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.private.results import BOUNDS, BOUNDS_BY_COLUMN, PRIVATE_STEPS, Bounds, HasPrivacy
from multicentre.regression.results import default_link
from multicentre.regression.rounding import needs_null_fit, rounding_of
from multicentre.regression.rounds import Fit, Plan, Prepared
from multicentre.regression.site import RegressionSite
from multicentre.regression.site_effects import (
    HasSiteIntercepts,
    SiteEffects,
    add_mean_intercept,
    deviance_without_covariates,
    sum_intercepts,
)
from multicentre.statistics.chi_square import TestResult, chi_square_test

Floats = NDArray[np.float64]


WITH_NOISE = Only("epsilon", lambda model: model.epsilon is not None)


class FedGLM(HasMarginalEffects, HasPrivacy, HasOverdispersion, HasSiteIntercepts):
    """Federated generalised linear model.

    Fisher scoring needs sums over patients only, so coefficients, standard errors and tests equal those of the pooled
    patients, however the patients are split over sites. Sites hold ``TableData``.

    Parameters
    ----------
    family : {"gaussian", "binomial", "poisson", "gamma", "negative_binomial"}, default "gaussian"
        Distribution of the outcome. "binomial" is for two classes, the others for numbers. "negative_binomial" is for
        counts that vary more than under the Poisson law.
    link : {"identity", "logit", "probit", "cloglog", "log"}, optional
        Function from the mean to the linear predictor: identity or log for gaussian outcomes; logit, probit or cloglog
        for two classes; log for counts and gamma outcomes. By default the first of the family.
    formula : str, optional
        Covariates, for example ``"died ~ age * sex + C(stage, ref='I') + ns(bmi, df=4) + offset(log(days))"``; by
        default all columns. See the documentation of formulas for functions and knots.
    offset : str, optional
        Column that is added to the linear predictor, for example the logarithm of the time at risk.
    weights : str, optional
        Column of weights, at least 0.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`: a row stands for that many patients, or is weighted by the inverse of its probability of
        selection. Errors of probability weights must be robust.
    site_effects : {"fixed"}, optional
        "fixed": an intercept per site, as in a model with an indicator of each site. Sites maximise over their
        intercept in every round, so that no intercept leaves a site unless :meth:`site_intercepts` requests it. A site
        with outcomes of one class only, or with counts of 0 only, has no finite intercept; its patients do not
        influence the coefficients. Predictions use the mean intercept.
    alpha : float, default 0.0
        Penalty on the coefficients b of standardised covariates: the fit minimises half the deviance plus
        ``alpha * ((1 - l1_ratio) / 2 * sum(b**2) + l1_ratio * sum(abs(b)))``. It is 1 / C of scikit-learn's
        LogisticRegression, and n times the penalty of its ElasticNet and of R's glmnet. Above 0 there are no standard
        errors, because they would ignore the bias.
    l1_ratio : float, default 0.0
        Share of the penalty on absolute coefficients: 0 for ridge, 1 for lasso, between them elastic net.
    errors : {"model", "HC0", "HC1", "cluster"}, default "model"
        Standard errors: from the information; by the sandwich estimator, without or with the factor n / (n - p); or by
        sums of scores within clusters, with the factor G / (G - 1) (n - 1) / (n - p) for G clusters.
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
    epsilon : float, optional
        Fit with (`epsilon`, `delta`)-differential privacy: hide whether any one patient is among a site's. For
        "gaussian" with the identity link and "binomial" with logit, without formula, weights, penalty and robust
        errors. Standard errors include the noise.
    delta : float, default 1e-5
        Probability with which `epsilon` may fail; well below one over the number of patients.
    bounds : mapping of str to (float, float), optional
        Required with `epsilon`: lower and upper bound of every column, beyond which values are cut. They must be public
        (the meaning of a column, reference ranges): `epsilon` does not cover values computed from the patients.
    outcome_bounds : (float, float), optional
        Required with `epsilon` for "gaussian": bounds of the outcome.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or parameters do not fit together.
    DataError
        Outcomes are not of the family, a covariate is constant, or covariates depend on each other without a penalty.
    SchemaMismatch
        Sites differ in their columns or classes, or `offset`, `weights` or `cluster` is not a column.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    NoiseWarning
        The noise of privacy hides the result, or many patients are beyond the bounds.
    DispersionWarning
        Counts of family "negative_binomial" vary no more than under the Poisson law.
    SeparationWarning
        The likelihood rises without bound as a coefficient grows.

    References
    ----------
    .. [1] J. A. Nelder, R. W. M. Wedderburn (1972), Generalized linear models, Journal of the Royal Statistical Society
       A 135, 370-384.
    .. [2] H. White (1980), A heteroskedasticity-consistent covariance matrix estimator and a direct test for
       heteroskedasticity, Econometrica 48, 817-838.
    .. [3] K.-Y. Liang, S. L. Zeger (1986), Longitudinal data analysis using generalized linear models, Biometrika 73,
       13-22.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> data = mc.data.TableData(X, rng.poisson(np.exp(0.5 * X[:, 0])), columns=["age", "dose"], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.regression.FedGLM("poisson").fit(federation)
    >>> model.coef_.round(2).tolist()
    [0.45, 0.06]
    """

    site_part: ClassVar[type[SitePart]] = RegressionSite
    lacks: ClassVar[Mapping[str, str]] = {"penalty by cross-validation": "FedGLMCV chooses it"}
    model_phrases: ClassVar[Phrases] = {
        **dict.fromkeys(("family", "link"), ""),
        "formula": "covariates {}",
        "offset": "offset {}",
        **WEIGHTING_PHRASES,
        "site_effects": {None: "one intercept for all sites", "fixed": "an intercept per site"},
        **PENALTY_PHRASES,
        "epsilon": lambda model: (
            f"differential privacy (epsilon {model.epsilon:g}, delta {model.delta:g})" if model.epsilon else ""
        ),
        "delta": "",
        "bounds": "values cut at {}",
        "outcome_bounds": "outcome cut at {}",
        **COMPUTING,
    }
    applicable: ClassVar[Applicable] = {
        **WEIGHTING_APPLICABLE,
        **PENALTY_APPLICABLE,
        "delta": WITH_NOISE,
        "bounds": WITH_NOISE,
        "outcome_bounds": WITH_NOISE,
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "family": OneOf(*LINKS),
        "link": (None, OneOf("identity", "logit", "probit", "cloglog", "log")),
        "formula": FORMULA,
        "offset": COLUMN,
        **WEIGHTING_RANGES,
        "site_effects": (None, OneOf("fixed")),
        **PENALTY_RANGES,
        "missing": OneOf("complete", "indicator", "mean"),
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
        "epsilon": (None, Real(1e-6, 1e12)),
        "delta": Real(0, 1, open="both"),
        "bounds": (None, BOUNDS_BY_COLUMN),
        "outcome_bounds": (None, BOUNDS),
    }

    def __init__(
        self,
        family: Family = "gaussian",
        *,
        link: Link | None = None,
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
        max_iter: int = 25,
        tol: float = 1e-8,
        epsilon: float | None = None,
        delta: float = 1e-5,
        bounds: Mapping[str, Bounds] | None = None,
        outcome_bounds: Bounds | None = None,
    ) -> None:
        self.family = family
        self.link = link
        self.formula = formula
        self.offset = offset
        self.weights = weights
        self.weight_type = weight_type
        self.site_effects = site_effects
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.errors = errors
        self.cluster = cluster
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.outcome_bounds = outcome_bounds

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        if self.epsilon is not None:
            return PRIVATE_STEPS
        steps = {"describe", "sum_columns", "sum_products", "sum_derivatives", "sum_slopes"} | GAP_STEPS | RARE_STEPS
        steps |= {"sum_count_derivatives"} if self._family == "negative_binomial" else set()
        steps |= self._formula_steps() | ({"sum_effects"} if self.formula else set())
        steps |= {"sum_score_products"} if self.errors != "model" else set()
        return frozenset(steps | ({"sum_intercepts", "tell_intercept"} if self.site_effects else set()))

    @property
    def _intercept_rule(self) -> str:
        if not (self._family == "negative_binomial" or self.site_effects or self.missing != "complete"):
            return ""
        return (
            'a model without intercept must have missing="complete", no site_effects and another family than '
            "negative_binomial"
        )

    @property
    def _family(self) -> Family:
        return self.family

    @property
    def _link(self) -> Link:
        return self.link or default_link(self._family)

    def _check_parameters(self) -> None:
        if self.family in ("multinomial", "ordinal"):
            raise ConfigurationError(
                f"family must be one of {', '.join(LINKS)}; got {self.family}",
                where="family",
                hint=f"Use Fed{self.family.capitalize()}Regression for an outcome of several classes.",
            )
        super()._check_parameters()
        self._check_counts(site_effects=self.site_effects, l1_ratio=self.l1_ratio)
        self._check_formula()
        if self._link not in LINKS[self._family]:
            raise ConfigurationError(
                f"link of family {self._family} must be one of {', '.join(LINKS[self._family])}; got {self._link}",
                where="link",
                hint=f"Leave link out for {LINKS[self._family][0]}.",
            )
        if self.site_effects and (self._family, self._link) == ("gaussian", "log"):
            raise ConfigurationError(
                "intercepts of sites must be of a likelihood with one maximum over them; got gaussian with link log",
                where="site_effects",
                hint="Choose another link or family.",
            )
        self._check_weighting()
        self._check_private()

    def _fit(self, session: Session) -> None:
        if self.epsilon is not None:
            self._fit_private(session)
            return
        model = self._model_of(self._family, self._link, site_intercepts=self.site_effects is not None)
        agreed = rounds.agree(session, model, self.missing, self._parsed)
        self._set_design(agreed)
        plan = self._plan(session, agreed)
        counts = fit_with_null(session, agreed, plan) if self._family == "negative_binomial" else None
        fit = counts.full.fit if counts else rounds.fit_model(session, agreed, plan)
        intercepts, null, without = None, 0.0, None
        if counts:
            null = counts.null_deviance
        elif self.site_effects:
            intercepts, null = sum_intercepts(session, agreed, fit), deviance_without_covariates(session, agreed)
            fit.coefficients[0] += intercepts.total / intercepts.weight
        elif not agreed.has_intercept:
            null = deviance_without_covariates(session, agreed)
        elif self._offset_column:
            null = rounds.fit_model(session, agreed, plan, null=True).deviance
        elif needs_null_fit(agreed.centre, agreed.totals, agreed.moments, rounding_of(session)):
            without = rounds.fit_model(session, agreed, replace(plan, alpha=0.0, lasso=0.0), null=True)
        self._set_fit(agreed, fit, round(intercepts.n_sites) - 1 if intercepts else 0)
        self._set_likelihood(agreed, fit, null)
        if without is not None:
            self.null_deviance_ = float(without.deviance * agreed.scale**2)
        self._set_overdispersion(agreed, fit, counts)
        self._infer(session, agreed, fit, intercepts)
        self.cut_share_, self.noise_errors_ = np.nan, np.zeros_like(self.standard_errors_)
        self.tests_ = self._tests(agreed, without)
        self._add_count_tests(agreed, counts)
        warn_of_rounds(("intercept", *agreed.covariates), fit.diverging, fit.converged, self.max_iter)

    def _plan(self, session: Session, agreed: Prepared) -> Plan:
        ridge, lasso = agreed.penalties(float(self.alpha), float(self.l1_ratio))
        return Plan(ridge, int(self.max_iter), float(self.tol), session.protection == "masked", lasso)

    def _set_fit(self, agreed: Prepared, fit: Fit, n_indicators: int) -> None:
        model = agreed.centre
        values = to_units(agreed.centre.centre, agreed.spread, agreed.coefficient_scale) @ fit.coefficients
        values[0] += agreed.shift
        self.scales_ = Scales(agreed.spread, model.mean, agreed.coefficient_scale)
        self.model_ = LinearModel(
            self._family,
            self._link,
            agreed.unmarked,
            agreed.marked,
            agreed.covariates,
            agreed.classes if self._family == "binomial" else (),
            agreed.levels,
            self._offset_column,
            float(values[0]),
            values[1:],
            model.centre,
            complete=agreed.complete,
        )
        self.n_patients_ = round(agreed.totals.n_patients)
        size = self._size(agreed.totals)
        self._n_coefficients = len(values) + n_indicators - int(not agreed.has_intercept)
        self.residual_freedom_ = float(size - self._n_coefficients)
        self.converged_, self.history_ = fit.converged, fit.history

    def _set_likelihood(self, agreed: Prepared, fit: Fit, null: float) -> None:
        squared_scale = agreed.scale**2
        self.deviance_ = float(fit.deviance * squared_scale)
        has_null = bool(self.site_effects or self._offset_column or not agreed.has_intercept)
        has_null |= self._family == "negative_binomial"
        self.null_deviance_ = float(null * squared_scale) if has_null else null_deviance(self._family, agreed)
        pearson = max(fit.pearson, 0.0) * squared_scale  # a masked sum of 0 may be below 0 by rounding
        dispersed = self._family in DISPERSED
        self.dispersion_ = float(pearson / self.residual_freedom_) if dispersed else 1.0
        size, n_coefficients = agreed.totals.weight, self._n_coefficients
        self.log_likelihood_ = self.aic_ = self.bic_ = np.nan
        if self._has_likelihood:
            self.log_likelihood_ = float(
                log_likelihood(self._family, self.deviance_, agreed.totals.constant, size, self.dispersion_)
            )
        if not self.alpha:  # a penalised fit has fewer effective parameters than coefficients
            self.aic_ = 2.0 * n_coefficients - 2.0 * self.log_likelihood_
            self.bic_ = float(np.log(size)) * n_coefficients - 2.0 * self.log_likelihood_

    def _infer(self, session: Session, agreed: Prepared, fit: Fit, intercepts: messages.Intercepts | None) -> None:
        values, p = self.model_.values, len(fit.coefficients)
        self.covariance_ = np.full((p, p), np.nan)
        rounding = session.rounding(RegressionSite.sum_derivatives, "pearson")
        is_exact = self._family in DISPERSED and is_perfect(fit.pearson, agreed.totals.weight, rounding)
        if not self.alpha and fit.settled and not is_exact:
            self.covariance_ = self._covariance(session, agreed, fit, intercepts)
        self.standard_errors_ = np.sqrt(np.diagonal(self.covariance_))
        with np.errstate(divide="ignore", invalid="ignore"):  # a perfect fit has standard errors of 0
            statistics = values / self.standard_errors_
        self.p_values_ = p_values(statistics, self._freedom)
        half = quantile(self.confidence_level, self._freedom) * self.standard_errors_
        self.intervals_ = np.column_stack([values - half, values + half])

    def _covariance(
        self, session: Session, agreed: Prepared, fit: Fit, intercepts: messages.Intercepts | None
    ) -> Floats:
        """Return the covariance of the coefficients, shape (p, p); NaN for those that diverge."""
        first = int(agreed.centre.site_intercepts or not agreed.has_intercept)
        factor, products = self._bread(session, agreed, fit)
        matrix, places = self._to_units(), range(first, len(fit.coefficients))
        block = np.ix_(places, places)
        inner = None if products is None else products[block]
        covariance = np.zeros_like(matrix)
        covariance[block] = factor * covariance_of(matrix[block], fit.information[block], fit.diverging[first:], inner)
        if intercepts and (self.errors != "model" or fit.diverging.any()):
            covariance[0] = covariance[:, 0] = np.nan
        elif intercepts:
            inverse, dispersion = np.linalg.inv(matrix), self.dispersion_ / agreed.scale**2
            of_slopes = inverse @ covariance @ inverse.T
            of_slopes[0] = of_slopes[:, 0] = 0.0  # a number that is 0 per unit is a mixture of slopes in the rounds
            covariance = matrix @ add_mean_intercept(of_slopes, intercepts, dispersion) @ matrix.T
        return covariance

    def _bread(self, session: Session, agreed: Prepared, fit: Fit) -> tuple[float, Floats | None]:
        """Return the factor of a covariance, and the products of first derivatives behind robust errors."""
        if self.errors == "model":
            return self.dispersion_ / agreed.scale**2, None
        at = replace(agreed.at(fit.coefficients), overdispersion=self.overdispersion_)
        sums = session.sum(RegressionSite.sum_score_products, at)
        size, n_coefficients = self.residual_freedom_ + self._n_coefficients, self._n_coefficients
        return small_sample_factor(self.errors, size, n_coefficients, sums.n_clusters), sums.products

    def _tests(self, agreed: Prepared, without: Fit | None) -> dict[str, TestResult]:
        d = len(self.coef_)
        if not d or np.isnan(self.covariance_[1:, 1:]).any() or not self.covariance_[1:, 1:].any():
            return {}  # a perfect fit has standard errors of 0
        tests = {"wald": chi_square_test(float(self.coef_ @ np.linalg.solve(self.covariance_[1:, 1:], self.coef_)), d)}
        if self.errors != "model" or self._family == "negative_binomial":
            return tests
        gain = self.null_deviance_ - self.deviance_
        if self._family == "gaussian":
            gain = agreed.totals.weight * float(np.log(self.null_deviance_ / self.deviance_))
        tests["likelihood_ratio"] = chi_square_test(gain / (self.dispersion_ if self._family == "gamma" else 1.0), d)
        if agreed.has_intercept and not (self._offset_column or self.site_effects):
            if without is None:
                score = score_statistic(self._family, agreed)
            else:
                spread = without.pearson / agreed.totals.weight if self._family in DISPERSED else 1.0
                score = float(without.gradient @ np.linalg.solve(without.information, without.gradient)) / spread
            tests["score"] = chi_square_test(score, d)
        return tests

    def _at(self) -> messages.At:
        scales = self.scales_
        values = np.asarray(np.linalg.solve(self._to_units(), self.model_.values), dtype=np.float64)
        model = self._model_of(self._family, self._link, site_intercepts=self.site_effects is not None)
        return messages.At(
            **vars(model),
            centre=self.model_.centre,
            mean=scales.mean,
            spread=scales.spread,
            scale=scales.scale,
            coefficients=values,
            overdispersion=self.overdispersion_,
        )


def null_deviance(family: Family, agreed: Prepared) -> float:
    """Return the deviance of a model with only an intercept, from sums of the outcomes."""
    totals, mean = agreed.totals, agreed.centre.mean
    if family == "gaussian":
        return agreed.moments.outcome_squares
    if family == "binomial":
        shares = np.array([mean, 1.0 - mean])
        return float(-2.0 * totals.weight * shares @ np.log(shares))
    if family == "poisson":
        return float(2.0 * (totals.entropy - totals.outcome * np.log(mean)))
    return float(2.0 * (totals.weight * np.log(mean) - totals.constant))


def score_statistic(family: Family, agreed: Prepared) -> float:
    """Return the score statistic of all covariates, from second moments; it does not depend on the link."""
    moments, mean = agreed.moments, agreed.centre.mean
    spread = float(variance(family, np.array([mean]))[0])
    if family in DISPERSED:
        spread = moments.outcome_squares / agreed.totals.weight
    return float(moments.cross @ np.linalg.solve(moments.products, moments.cross) / spread)
