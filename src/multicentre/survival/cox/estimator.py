"""Federated Cox model: estimates of the pooled fit, computed from sums over sites."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError, QuorumLost, SeparationWarning
from multicentre.estimator.formula import FORMULA
from multicentre.estimator.model_in_force import COMPUTING, Phrases
from multicentre.estimator.parameters import (
    Applicable,
    Flag,
    Integer,
    OneOf,
    Only,
    ParameterRanges,
    Real,
    Where,
    check_parameters,
)
from multicentre.estimator.penalty import PENALTY_APPLICABLE, PENALTY_PHRASES, PENALTY_RANGES
from multicentre.estimator.weighting import (
    COLUMN,
    WEIGHTING_APPLICABLE,
    WEIGHTING_PHRASES,
    WEIGHTING_RANGES,
    HasWeighting,
    WeightType,
)
from multicentre.statistics.chi_square import TestResult
from multicentre.survival.agreement.horizon import horizon_in_force
from multicentre.survival.agreement.messages import LARGEST, Prepared
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalMissing
from multicentre.survival.cox import messages
from multicentre.survival.cox import rounds as loops
from multicentre.survival.cox.maths import (
    TRANSFORMS,
    TimeTransform,
    covariance,
    global_tests,
    informed,
    proportionality_tests,
    score_tests_of_proportionality,
)
from multicentre.survival.cox.results import ROBUST_ERRORS, CoxResults, SiteEffects
from multicentre.survival.cox.rounds import (
    STILL_MOVING,
    BaselineTimes,
    Fit,
    Plan,
    make_model,
    sum_curvatures,
    sum_residuals,
    sum_scores,
    value_times,
)
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.estimator import MISSING, cause_in_force
from multicentre.survival.kernels.risk_sets import Ties

# Mean events per site below which a fit with a separate baseline per site warns. Compared with a shared baseline it
# lost 0.009, 0.007, 0.003 and -0.003 of concordance at 3, 5, 10 and 20 events per site, mean of 8 simulated scenarios,
# and at most 0.018, 0.020, 0.017 and 0.003 (python benchmarks/fed_cox.py small). From 10 on, either may be better.
FEW_EVENTS = 10
# Share of a column's variance within sites below which strata leave less than a tenth of its information: standard
# errors are then more than three times those with a shared baseline.
MIN_WITHIN = 0.1


def warn_of_fit(fit: Fit, columns: Sequence[str], max_iter: int) -> None:
    """Warn about columns without information, separation, and rounds that ended too early."""
    if fit.flat.any():
        _warn(
            f"{_named(fit.flat, columns)}: the column carries no information on a hazard ratio, because it is the same "
            "for all patients who are at risk together. Its coefficient is 0 and has no standard error. If it differs "
            'between sites, share one baseline (times="grid").',
            UserWarning,
        )
    if fit.diverging.any():
        _warn(
            f"{_named(fit.diverging, columns)}: the likelihood may rise without bound as the coefficient grows. The "
            "hazard ratio is not usable and has no standard error. A penalty (alpha=1.0) keeps it finite.",
            SeparationWarning,
        )
    elif not (fit.converged or fit.lead):
        _warn(
            f"the rounds ended at max_iter={max_iter} before the coefficients converged. Coefficients far from the "
            "maximum have no standard errors and intervals.",
            ConvergenceWarning,
        )
    far = ~(fit.reliable | fit.flat | fit.diverging) & (np.abs(fit.moving) > STILL_MOVING)
    if fit.lead and far.any():
        _warn(
            f"{_named(far, columns)}: one round led by {fit.lead} ends too far from the maximum for standard "
            "errors and intervals. Name a lead with more events, or fit in rounds (one_round=False).",
            ConvergenceWarning,
        )


def warn_of_columns_between_sites(fit: Fit, columns: Sequence[str]) -> None:
    """Warn of columns whose differences between sites, which separate baselines absorb, are nearly all there is."""
    is_between = (fit.totals.within < MIN_WITHIN) & ~fit.flat
    if is_between.any():
        _warn(
            f"{_named(is_between, columns)}: less than a tenth of the variance lies within sites. With a separate "
            "baseline per site, differences between sites do not count: standard errors are large, and predictions "
            'for other sites lose most of the covariate. To use them, share one baseline: times="grid" or "exact".',
            UserWarning,
        )


def warn_of_small_sites(n_events: float, n_sites: int) -> None:
    """Warn if a separate baseline per site leaves few events per site to compare."""
    if n_sites > 1 and n_events < FEW_EVENTS * n_sites:
        _warn(
            f"{n_events / n_sites:.3g} events per site on average. With a separate baseline per site, predictions "
            "lost up to 0.02 of concordance in simulations with fewer than 10. For predictions share one baseline: "
            'times="grid".',
            UserWarning,
        )


def _named(chosen: NDArray[np.bool_], columns: Sequence[str]) -> str:
    names = [columns[place] for place in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _warn(message: str, kind: type[Warning]) -> None:
    warnings.warn(message, kind, stacklevel=5)


Floats = NDArray[np.float64]

_STEPS: dict[BaselineTimes, tuple[str, ...]] = {
    "stratified": ("sum_derivatives", "sum_baseline", "sum_own_residuals", "sum_own_curvatures"),
    "grid": ("sum_risk", "sum_products", "sum_baseline", "sum_residuals"),
    "exact": ("sum_exact_risk", "sum_exact_products", "sum_exact_residuals"),
}

_ROBUST: dict[BaselineTimes, str] = {"stratified": "sum_own_scores", "grid": "sum_scores", "exact": "sum_exact_scores"}


_ERRORS = {"model": "model-based standard errors", "HC0": "robust standard errors (Lin and Wei)"}
IN_ROUNDS = Only("one_round=False", lambda model: not model.one_round)


class FedCox(HasWeighting, CoxResults):
    """Federated Cox proportional hazards regression.

    Newton-Raphson rounds need sums over patients only, so the estimates equal those of the pooled patients, however the
    patients are split over sites. Sites hold ``SurvivalData``; `missing` sets the handling of incomplete patients.

    Parameters
    ----------
    times : {"stratified", "grid", "exact"}, default "stratified"
        Baseline hazard, and the times at which it is estimated.

        "stratified": a separate baseline per site, at the site's event times; equals the pooled Cox model with
        ``strata(site)``. No times and no sums by time leave a site during the fit, only a vector and a matrix per
        round. It is the default because sites differ in more than their patients' columns, and because it discloses
        least. For predictions, a shared baseline is estimated afterwards, on a grid.

        "grid": a shared baseline, on a grid of `n_times` agreed times; events after the horizon do not count.

        "exact": a shared baseline, at the times of all events; equals the pooled Cox model. The sites' policies must
        permit ``exact_times``, and sums must be masked unless the policy requires no minimum of patients.
    ties : {"efron", "breslow"}, default "efron"
        Handling of events at the same time, or in the same bin of the grid. Efron's estimates have less bias if there
        are many ties.
    alpha : float, default 0.0
        Size of the penalty ``alpha * ((1 - l1_ratio) / 2 * sum(b**2) + l1_ratio * sum(abs(b)))`` on the coefficients b
        of standardised columns, as in scikit-survival.
    l1_ratio : float, default 0.0
        Share of the lasso in the penalty: 0 for ridge, 1 for the lasso, which sets coefficients to 0. Above 0 there are
        no standard errors, intervals and tests.
    n_times : int, default 128
        Number of times of the grid, at most 256.
    horizon : float, optional
        End of follow-up: later events do not count. By default all events count with ``times="stratified"`` or
        ``"exact"``, and a grid, that of the baseline for predictions too, ends at the time by which 95 % of the
        follow-ups ended; ``n_events_after_horizon_`` counts the events that are left out.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored (cause-specific hazard).
    formula : str, optional
        Covariates, for example ``"age * sex + C(stage, ref='I') + ns(bmi, df=4)"``; by default all columns. See the
        documentation of formulas for functions and knots.
    offset : str, optional
        Column that is added to the log hazard ratio.
    weights : str, optional
        Column of weights, at least 0. A patient with weight 0 does not count.
    weight_type : {"frequency", "probability"}, default "frequency"
        Meaning of `weights`: a row stands for that many patients, or is weighted by the inverse of its probability of
        selection. Errors of probability weights must be robust.
    errors : {"model", "HC0", "cluster"}, default "model"
        Standard errors: from the information; by the sandwich estimator of Lin and Wei [3]_, which, if hazards are not
        proportional, are those of the average log hazard ratio over time that the coefficients then estimate; or by
        sums of the score residuals within clusters.
    cluster : str, optional
        Column of clusters for ``errors="cluster"``, numbered within each site. Equal numbers at two sites are two
        clusters.
    one_round : bool, default False
        Approximate fit in one round instead of Newton-Raphson rounds: the mean of the sites' estimates, the derivatives
        of all sites at the mean, and the likelihood of one site in place of all (ODAC [4]_; with a separate baseline
        per site, ODACH [5]_).
    lead : str, optional
        Site whose likelihood is used in one round. By default the site with most events; for this choice, each site
        whose policy permits it returns its number of events.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries: leave incomplete patients out; fill with the mean over sites and add an indicator
        column; or fill only, which biases coefficients and shortens their standard errors. ``missing_`` counts missing
        entries.
    confidence_level : float, default 0.95
        Confidence level of the intervals.
    max_iter : int, default 25
        Maximum number of Newton steps, halvings included.
    tol : float, default 1e-9
        The rounds stop when no coefficient of a standardised column changes by more (at least 1e-7 with masked sums; up
        to 1e-5, with a warning, where sums over very many sites do not resolve less).

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or `lead` is not a site.
    DataError
        No patient has an event, a column is constant or varies by less than the rounding of masked sums, or columns
        depend on each other and there is no penalty.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        The likelihood rises without bound as a coefficient grows.
    UserWarning
        A column is the same for all patients who are at risk together, for example within each site; its coefficient
        is 0. With ``times="stratified"``, less than a tenth of a column's variance lies within sites, or sites have
        fewer than 10 events on average: predictions of a fit with a shared baseline rank better. Masked sums do not
        resolve `tol`.

    References
    ----------
    .. [1] D. R. Cox (1972), Regression models and life-tables, Journal of the Royal Statistical Society B 34, 187-202.
    .. [2] C.-L. Lu et al. (2015), WebDISCO: a web service for distributed Cox model learning without patient-level data
       sharing, Journal of the American Medical Informatics Association 22, 1212-1219.
    .. [3] D. Y. Lin, L. J. Wei (1989), The robust inference for the Cox proportional hazards model, Journal of the
       American Statistical Association 84, 1074-1078.
    .. [4] R. Duan et al. (2020), Learning from local to global: an efficient distributed algorithm for modeling
       time-to-event data, Journal of the American Medical Informatics Association 27, 1028-1036 (ODAC).
    .. [5] C. Luo et al. (2022), ODACH: a one-shot distributed algorithm for Cox model with heterogeneous multi-center
       data, Scientific Reports 12, 6627.
    .. [6] P. M. Grambsch, T. M. Therneau (1994), Proportional hazards tests and diagnostics based on weighted
       residuals, Biometrika 81, 515-526.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for site in ("lyon", "porto", "turin"):
    ...     X = rng.normal(size=(100, 2))
    ...     time, end = rng.exponential(np.exp(-0.5 * X[:, 0])), rng.exponential(2.0, size=100)
    ...     sites[site] = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=["age", "dose"])
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.survival.FedCox().fit(federation)
    >>> model.coef_.round(2).tolist()
    [0.61, 0.1]
    """

    site_part: ClassVar[type[SitePart]] = CoxSite
    model_phrases: ClassVar[Phrases] = {
        "times": {
            "stratified": "a separate baseline hazard per site (stratified by site)",
            "grid": "a baseline hazard shared by all sites, on a grid of times",
            "exact": "a baseline hazard shared by all sites, at the times of all events",
        },
        "n_times": lambda model: f"at most {model.n_times} times of the grid" if model.times == "grid" else "",
        "horizon": horizon_in_force,
        "cause": cause_in_force,
        "formula": "covariates {}",
        "ties": {"efron": "ties by Efron's method", "breslow": "ties by Breslow's method"},
        **PENALTY_PHRASES,
        **WEIGHTING_PHRASES,
        "offset": "offset {}",
        "errors": lambda model: _ERRORS.get(model.errors, f"robust standard errors, clustered by {model.cluster}"),
        "one_round": {True: "approximate fit in one round (ODAC)", False: ""},
        "lead": "lead site {}",
        **COMPUTING,
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "times": OneOf("stratified", "grid", "exact"),
        "ties": OneOf("efron", "breslow"),
        **PENALTY_RANGES,
        "n_times": Integer(1),
        "horizon": (None, Real(0, open="low")),
        "cause": Integer(1, 127),
        "formula": FORMULA,
        "offset": COLUMN,
        **WEIGHTING_RANGES,
        "errors": OneOf("model", "HC0", "cluster"),
        "one_round": Flag(),
        "missing": MISSING,
        "lead": (None, Where("the name of a site", lambda value: isinstance(value, str))),
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
    }

    applicable: ClassVar[Applicable] = {
        **WEIGHTING_APPLICABLE,
        **PENALTY_APPLICABLE,
        "n_times": Only('times "stratified" or "grid"', lambda model: model.times != "exact"),
        "lead": Only("one_round=True", lambda model: model.one_round),
        "max_iter": IN_ROUNDS,
        "tol": IN_ROUNDS,
    }

    def __init__(
        self,
        times: BaselineTimes = "stratified",
        *,
        ties: Ties = "efron",
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        n_times: int = 128,
        horizon: float | None = None,
        cause: int = 1,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        errors: Literal["model", "HC0", "cluster"] = "model",
        cluster: str | None = None,
        one_round: bool = False,
        lead: str | None = None,
        missing: SurvivalMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 25,
        tol: float = 1e-9,
    ) -> None:
        self.times = times
        self.ties = ties
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.n_times = n_times
        self.horizon = horizon
        self.cause = cause
        self.formula = formula
        self.offset = offset
        self.weights = weights
        self.weight_type = weight_type
        self.errors = errors
        self.cluster = cluster
        self.one_round = one_round
        self.lead = lead
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def _model_name(self) -> str:
        return "Cox proportional hazards regression"

    @property
    def models_sites(self) -> bool:
        """True if each site is a stratum."""
        return self.times == "stratified"

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {*_STEPS[self.times], *self._formula_steps()}
        if self.errors != "model":
            steps |= {_ROBUST[self.times]}
        if self.one_round:
            steps |= {"sum_estimates", "solve_surrogate"} | (set() if self.lead else {"offer_lead"})
        return steps_of_agreement(self._needs()) | steps | {"fit_own"} | self._naming_steps()

    def by_site(self) -> SiteEffects:
        """Fit each site of the last fit separately, and combine the coefficients.

        Each answer describes a single site: it leaves unmasked, the guard checks it and the ledger records it.

        Returns
        -------
        SiteEffects
            Estimates by site, with errors from the information; robust ones with probability weights and clusters. They
            are NaN where a site has fewer than three events, separation or a constant column,
            and where the site's policy refuses the answer, for example because it rests on too few patients.
        """
        self._check_no_lasso("by_site")
        answers = self.session.ask(CoxSite.fit_own, self._penalty(), skip_refusals=True)
        return replace(self._effects(self.session.sites, answers), refused=answers.refused)

    def check_proportionality(
        self, transform: TimeTransform = "km", *, test: Literal["score", "residuals"] = "score"
    ) -> dict[str, TestResult]:
        """Test whether hazards are proportional, from sums of Schoenfeld residuals of the sites of the last fit.

        Parameters
        ----------
        transform : {"km", "rank", "identity", "log"}, default "km"
            Transform of the times: 1 minus the Kaplan-Meier estimate just before the time, rank, the time itself, or
            its logarithm. With ``times="exact"`` the times are those of the events, otherwise those of the grid; the
            score test of a fit stratified by site uses the recorded times for "identity" and "log".
        test : {"score", "residuals"}, default "score"
            "score": that of ``cox.zph`` in R's survival since version 3. It is the default because it uses the variance
            of the residuals at each time. "residuals": that of earlier versions and of lifelines, which replaces the
            variances by their mean and can be far off where the spread of a column among those at risk changes.

        Returns
        -------
        dict of str to TestResult
            Grambsch-Therneau tests (1994) by column, and "global" for all columns; `name` says which test it is.

        Raises
        ------
        ConfigurationError
            `transform` or `test` is not one of these.
        QuorumLost
            A site of the fit no longer answers.
        """
        self._check_no_lasso("check_proportionality")
        ranges = {"transform": OneOf(*TRANSFORMS), "test": OneOf("score", "residuals")}
        check_parameters({"transform": transform, "test": test}, ranges)
        session, fit, plan, agreed = self.session, self._reached, self._plan(), self.agreed_  # first: raises if loaded
        values = value_times(session, agreed, fit, plan, transform, of_all=test == "score")
        sums = sum_residuals(session, agreed, fit, plan, values)
        if test == "score":
            curvatures = sum_curvatures(session, fit, plan, values)
            information = fit.totals.information
            is_estimable = ~np.isnan(np.diagonal(self._model_based)) & ~fit.diverging
            score = curvatures.mixed, curvatures.squared, is_estimable
            tests, global_test = score_tests_of_proportionality(sums.weighted, information, *score)
        else:
            mean_value = sums.value / sums.n_events
            weighted = sums.weighted - mean_value * sums.plain
            squares = sums.squared_value - sums.n_events * mean_value**2
            tests, global_test = proportionality_tests(weighted, self._model_based, sums.n_events, squares)
        self._check_no_loss()
        return {**{self.feature_names_in_[place]: test for place, test in tests.items()}, "global": global_test}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_weighting()
        if self.l1_ratio and (self.one_round or self.errors != "model"):
            raise ConfigurationError(
                'l1_ratio above 0 must be used with one_round=False and errors="model"; got another value',
                where="l1_ratio",
                hint="Leave out one_round and errors, or set l1_ratio=0.",
            )
        if self.times != "exact" and self.n_times > MAX_TIMES:
            raise ConfigurationError(
                f"n_times must be at most {MAX_TIMES}; got {self.n_times}",
                where="n_times",
                hint="A finer grid would show single events.",
            )

    def _fit(self, session: Session) -> None:
        plan, agreed = self._plan(), self._agree(session, self._needs())
        if self.one_round:
            fit = loops.fit_one_shot(session, agreed, plan, self._lead(session))
        else:
            fit = loops.fit_by_rounds(session, agreed, plan)
        self.agreed_, self.history_, self._reached, self.lead_ = agreed, fit.history, fit, fit.lead
        self._reset_by_products()
        self._set_model(session, lambda: make_model(session, agreed, fit, plan))
        self.log_likelihood_ = fit.totals.value if self._has_likelihood else np.nan
        self.n_patients_, self.n_events_ = round(fit.totals.n_patients), round(fit.totals.n_events)
        self.converged_ = fit.converged
        self._infer(session, agreed, fit, plan)
        warn_of_fit(fit, agreed.columns, int(self.max_iter))
        if self.times == "stratified":
            warn_of_columns_between_sites(fit, agreed.columns)
            warn_of_small_sites(fit.totals.n_events, len(session))

    def _infer(self, session: Session, agreed: Prepared, fit: loops.Fit, plan: Plan) -> None:
        if plan.lasso:  # coefficients that a lasso chose have no standard errors
            self._model_based, self.tests_ = np.full_like(fit.totals.information, np.nan), {}
            self._set_inference(fit, self._model_based, self._model_based)
            return
        is_informed = informed(fit.totals.information, fit.totals.n_events)
        self._model_based = covariance(fit.totals.information, plan.alpha, is_informed)
        spread_of = self._model_based
        if self.errors != "model":
            none = np.full_like(fit.totals.information, np.nan)
            scores = self._by_product(session, ROBUST_ERRORS, lambda: sum_scores(session, agreed, fit, plan), none)
            spread_of = covariance(fit.totals.information, plan.alpha, is_informed, scores)
        tests = global_tests(
            fit.coefficients, spread_of, (fit.null[0], fit.totals.value), fit.null[1], int((~fit.flat).sum())
        )
        unreliable = is_informed & ~fit.reliable
        invalid = {"wald"} if unreliable.any() or fit.diverging.any() else set()
        # Where a coefficient has no finite maximum, the likelihood is at its bound, which the ratio compares.
        if (unreliable & (~fit.diverging | (plan.alpha > 0))).any():
            invalid.add("likelihood_ratio")
        if self.cluster or not self._has_likelihood:  # the likelihood takes patients as independent
            invalid |= {"likelihood_ratio", "score"}
        self.tests_ = {
            name: test for name, test in tests.items() if name not in invalid and np.isfinite(test.statistic)
        }
        self._set_inference(fit, spread_of, self._model_based)

    def _check_no_lasso(self, name: str) -> None:
        """Raise ConfigurationError after a fit with a lasso, which has no standard errors."""
        if self.l1_ratio and self.alpha:
            raise ConfigurationError(
                f"{name} must follow a fit without a lasso; got l1_ratio {self.l1_ratio:g}",
                where="l1_ratio",
                hint="Fit with l1_ratio=0.",
            )

    def _check_no_loss(self) -> None:
        """Raise QuorumLost if sums after the fit are of fewer sites than the fit."""
        lost = set(self.session.consortium.sites) - set(self.session.sites)
        if lost:
            raise QuorumLost(
                "all sites of the fit must answer a test of the fit; no answer",
                where=", ".join(sorted(lost)),
                hint="Fit again, without these sites or after they are back.",
            )

    def _needs(self) -> Needs:
        ends = (self.horizon or LARGEST) if self.times == "stratified" else None
        exact, cause = self.times == "exact", int(self.cause)
        return Needs(n_times=int(self.n_times), horizon=self.horizon, exact=exact, cause=cause, ends=ends)

    def _plan(self) -> Plan:
        ridge, lasso = float(self.alpha * (1.0 - self.l1_ratio)), float(self.alpha * self.l1_ratio)
        return Plan(self.times, self.ties, ridge, int(self.max_iter), float(self.tol), lasso)

    def _penalty(self) -> messages.Penalty:
        return messages.Penalty(float(self.alpha), self.ties == "efron")

    def _lead(self, session: Session) -> str | None:
        if self.lead and self.lead not in session.sites:
            raise ConfigurationError(
                f"lead must be one of {', '.join(session.sites)}; got {self.lead!r}",
                where="lead",
                hint="Name one of the sites.",
            )
        return self.lead
