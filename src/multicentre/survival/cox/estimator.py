"""The Cox model over sites: as if all patients were in one place, from sums alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from multicentre.data.missing.values import Missing
from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Session
from multicentre.federation.steps import SitePart
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MOST_TIMES
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox import rounds as loops
from multicentre.survival.cox.maths.inference import (
    TRANSFORMS,
    TestResult,
    TimeTransform,
    covariance,
    global_tests,
    informed,
    proportionality_tests,
)
from multicentre.survival.cox.results import CoxResults, SiteEffects
from multicentre.survival.cox.rounds import STILL_MOVING, Fit, Plan, Times, make_model, sum_residuals, sum_scores
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.kernels.risk_sets import Ties

# Mean events per site below which baselines of the sites' own are warned of. Against a shared baseline they lost 0.009,
# 0.007, 0.003 and -0.003 of concordance at 3, 5, 10 and 20 events per site, mean of 8 simulated scenarios, and at most
# 0.018, 0.020, 0.017 and 0.003 (python benchmarks/fed_cox.py small). From 10 on either may be better.
FEW_EVENTS = 10

_WHOLE = {"n_times": 1, "cause": 1, "max_iter": 1}

_CHOICES = {"times": ("stratified", "grid", "exact"), "ties": ("efron", "breslow")}


class SeparationWarning(UserWarning):
    """The likelihood rises as a coefficient grows without end: a column tells who has the event first."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind.

    Examples
    --------
    >>> check_parameters({"times": "grid", "ties": "efron", "alpha": 0.0, "n_times": 128, "horizon": None, "cause": 1,
    ...                   "robust": False, "one_round": False, "lead": None, "confidence_level": 0.95, "max_iter": 25,
    ...                   "tol": 1e-9})
    """
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            raise ConfigurationError(
                f"{given[name]!r} is none of its values", where=name, hint=f"Give one of {', '.join(choices)}."
            )
    for name, least in _WHOLE.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    if given["times"] != "exact" and given["n_times"] > MOST_TIMES:
        raise ConfigurationError(
            f"{given['n_times']} times are too fine a grid", where="n_times", hint=f"Give at most {MOST_TIMES}."
        )
    for name in ("robust", "one_round"):
        if not isinstance(given[name], bool | np.bool_):
            raise ConfigurationError(f"{given[name]!r} is neither true nor false", where=name)
    horizon = given["horizon"]
    _check_number("alpha", given["alpha"], 0.0, math.inf)
    _check_number("tol", given["tol"], 0.0, math.inf)
    _check_number("confidence_level", given["confidence_level"], 0.5, 1.0)
    if horizon is not None:
        _check_number("horizon", horizon, 1e-300, math.inf)


def _check_number(name: str, value: Any, least: float, below: float) -> None:
    known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (known and least <= value < below):
        raise ConfigurationError(f"{value!r} is not a number from {least:g} to below {below:g}", where=name)


def warn_of_fit(fit: Fit, columns: Sequence[str], max_iter: int) -> None:
    """Warn of columns without information, of separation, and of rounds that ended too early."""
    if fit.flat.any():
        _warn(f"{_named(fit.flat, columns)}: no information on a hazard ratio, as in a constant column.", UserWarning)
    if fit.diverging.any():
        _warn(
            f"{_named(fit.diverging, columns)}: the likelihood may rise without end as the coefficient grows; the "
            "ratio is of no use, and there is no error. A penalty (alpha=1.0) holds it back.",
            SeparationWarning,
        )
    elif not (fit.converged or fit.lead):
        _warn(
            f"the rounds ended at max_iter={max_iter} before coefficients settled; errors and intervals are left "
            "out where a coefficient is far from the maximum.",
            ConvergenceWarning,
        )
    far = ~(fit.reliable | fit.flat) & (np.abs(fit.moving) > STILL_MOVING)
    if fit.lead and far.any():
        _warn(
            f"{_named(far, columns)}: one round led by {fit.lead} ends too far from the maximum for errors and "
            "intervals. Name a lead with more events, or fit in rounds (one_round=False).",
            ConvergenceWarning,
        )


def warn_of_small_sites(n_events: float, n_sites: int) -> None:
    """Warn where baselines of the sites' own leave few events per site to compare."""
    if n_sites > 1 and n_events < FEW_EVENTS * n_sites:
        _warn(
            f"{n_events / n_sites:.3g} events per site on average: with a baseline of its own for each site, "
            "predictions lost up to 0.02 of concordance in simulations with fewer than 10. For predictions share one "
            'baseline: times="grid".',
            UserWarning,
        )


def _named(chosen: NDArray[np.bool_], columns: Sequence[str]) -> str:
    names = [columns[place] for place in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _warn(what: str, kind: type[Warning]) -> None:
    warnings.warn(what, kind, stacklevel=5)


Floats = NDArray[np.float64]

_STEPS: dict[Times, tuple[str, ...]] = {
    "stratified": ("sum_derivatives", "sum_baseline", "sum_own_residuals"),
    "grid": ("sum_risk", "sum_products", "sum_baseline", "sum_residuals"),
    "exact": ("sum_exact_risk", "sum_exact_products", "sum_exact_residuals"),
}

_ROBUST: dict[Times, str] = {"stratified": "sum_own_scores", "grid": "sum_scores", "exact": "sum_exact_scores"}


class FedCox(CoxResults):
    """Proportional hazards regression (Cox) of times that several sites hold.

    Newton and Raphson's rounds need sums over patients alone, so the fit is that of the pooled patients, however they
    are split. Sites hold ``SurvivalData``; `missing` says what happens to incomplete patients.

    Parameters
    ----------
    times : {"stratified", "grid", "exact"}, default "stratified"
        Whose baseline hazard, and at which times.

        "stratified": each site has its own, at its own times: the pooled Cox model with ``strata(site)``. No time and
        nothing by time leaves a site during the fit: a vector and a matrix a round. It is the default since sites
        differ in more than their patients' columns, and since it tells least. For predictions one shared baseline is
        put together afterwards, on a grid.

        "grid": one for all, on a grid of `n_times` agreed times; events after the horizon do not count.

        "exact": one for all, at the times of all events: the pooled Cox model. The sites' policies must permit
        ``exact_times``, and sums be masked or the policy ask for no minimum of patients.
    ties : {"efron", "breslow"}, default "efron"
        Events at one time, or in one bin of the grid. Efron's estimates suffer less where they are many.
    alpha : float, default 0.0
        Half of it times the squared coefficients of standardised columns is taken from the log-likelihood, as `alpha`
        of scikit-survival does.
    n_times : int, default 128
        Times of the grid, at most 256.
    horizon : float, optional
        Last time of the grid; by default the one by which 95 % of the follow-ups ended.
    cause : int, default 1
        Which events count; with competing risks those of other causes end the follow-up, and ratios are those of the
        cause-specific hazard.
    robust : bool, default False
        Errors by Lin and Wei's sandwich, which do not need hazards to be proportional.
    one_round : bool, default False
        In place of the rounds: each site's own estimate for a mean, the derivatives of all there, and one site's
        likelihood in the place of all others' (ODAC; with baselines of the sites' own, ODACH). An approximation.
    lead : str, optional
        The site whose likelihood it is; by default the one with most events, for which each site whose policy permits
        it tells the number of its events.
    missing : {"complete", "indicator", "mean"}, default "complete"
        What is done with missing entries: leave incomplete patients out; fill with the sites' mean and add a column
        that marks them; or fill only, which biases coefficients and shortens their standard errors. ``missing_`` counts
        them.
    confidence_level : float, default 0.95
        Of the intervals.
    max_iter : int, default 25
        Newton steps, halvings included.
    tol : float, default 1e-9
        Rounds end when no coefficient of standardised columns would change by more (1e-7 at least where sums are
        masked).

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        The likelihood rises without end as a coefficient grows.
    UserWarning
        A column carries no information; its coefficient is 0. With ``times="stratified"`` sites have fewer than 10
        events on average: predictions of a fit with one baseline rank better.

    Raises
    ------
    DataError
        Without a penalty, columns depend on each other.

    References
    ----------
    .. [1] D. R. Cox (1972), Regression models and life-tables, Journal of the Royal Statistical Society B 34, 187-202.
    .. [2] C.-L. Lu et al. (2015), WebDISCO: a web service for distributed Cox model learning without patient-level data
       sharing, Journal of the American Medical Informatics Association 22, 1212-1219.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for site in ("lyon", "porto", "turin"):
    ...     X = rng.normal(size=(100, 2))
    ...     time, end = rng.exponential(np.exp(-0.5 * X[:, 0])), rng.exponential(2.0, size=100)
    ...     sites[site] = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=["age", "dose"])
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = FedCox().fit(federation)
    >>> model.coef_.round(2).tolist()
    [0.61, 0.1]
    """

    site_part: ClassVar[type[SitePart]] = CoxSite

    def __init__(
        self,
        times: Times = "stratified",
        *,
        ties: Ties = "efron",
        alpha: float = 0.0,
        n_times: int = 128,
        horizon: float | None = None,
        cause: int = 1,
        robust: bool = False,
        one_round: bool = False,
        lead: str | None = None,
        missing: Missing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 25,
        tol: float = 1e-9,
    ) -> None:
        self.times = times
        self.ties = ties
        self.alpha = alpha
        self.n_times = n_times
        self.horizon = horizon
        self.cause = cause
        self.robust = robust
        self.one_round = one_round
        self.lead = lead
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and questions after it, may ask of a site."""
        steps = set(_STEPS[self.times])
        if self.robust:
            steps |= {_ROBUST[self.times]}
        if self.one_round:
            steps |= {"sum_estimates", "solve_surrogate"} | (set() if self.lead else {"offer_lead"})
        return steps_of_agreement(self._needs()) | steps | {"fit_own"}

    def by_site(self) -> SiteEffects:
        """Ask each site of the last fit for its own coefficients, and combine them.

        Each is a site's own answer and no term of a sum: it leaves unmasked, the guard checks it and the ledger
        keeps it.

        Returns
        -------
        SiteEffects
            Not a number for a column, or a site, that gives none: fewer than three events, separation, a column that
            is constant there, or an answer that the site's policy refuses, for one on too few patients.
        """
        answers = self.session.ask(CoxSite.fit_own, self._penalty(), skip_refusals=True)
        return replace(self._effects(self.session.sites, answers), refused=answers.refused)

    def check_proportionality(self, transform: TimeTransform = "km") -> dict[str, TestResult]:
        """Ask the sites of the last fit for sums of Schoenfeld's residuals, and test that hazards are proportional.

        Parameters
        ----------
        transform : {"km", "rank", "identity", "log"}, default "km"
            How times are weighed: by 1 less the Kaplan-Meier estimate just before, by rank, as they are, or by
            logarithm. With ``times="exact"`` times are those of the events, else those of the grid.

        Returns
        -------
        dict of str to TestResult
            By column, and "global" for all; Grambsch and Therneau's (1994).
        """
        if transform not in TRANSFORMS:
            raise ConfigurationError(
                f"{transform!r} is none of its values", where="transform", hint=f"Give one of {', '.join(TRANSFORMS)}."
            )
        found = sum_residuals(self.session, self.agreed_, self._reached, self._plan(), transform)
        average = found.value / found.n_events
        weighted = found.weighted - average * found.plain
        squares = found.squared_value - found.n_events * average**2
        each, together = proportionality_tests(weighted, self._model_based, found.n_events, squares)
        return {**{self.columns_[place]: test for place, test in each.items()}, "global": together}

    def _fit(self, session: Session) -> None:
        check_parameters(self.get_params(deep=False))
        plan, agreed = self._plan(), self._agree(session, self._needs())
        if self.one_round:
            fit = loops.fit_in_one_round(session, agreed, plan, self._lead(session))
        else:
            fit = loops.fit_by_rounds(session, agreed, plan)
        self.agreed_, self.history_, self._reached, self.lead_ = agreed, fit.history, fit, fit.lead
        self.model_ = make_model(session, agreed, fit, plan)
        self.log_likelihood_ = fit.totals.value
        self.n_patients_, self.n_events_ = fit.totals.n_patients, fit.totals.n_events
        self.n_iter_, self.converged_ = len(fit.history), fit.converged
        self._infer(session, agreed, fit, plan)
        warn_of_fit(fit, agreed.columns, int(self.max_iter))
        if self.times == "stratified":
            warn_of_small_sites(fit.totals.n_events, len(session))

    def _infer(self, session: Session, agreed: Agreed, fit: loops.Fit, plan: Plan) -> None:
        known = informed(fit.totals.information, fit.totals.n_events)
        self._model_based = covariance(fit.totals.information, plan.alpha, known)
        spread_of = self._model_based
        if self.robust:
            scores = sum_scores(session, agreed, fit, plan)
            spread_of = covariance(fit.totals.information, plan.alpha, known, scores)
        tests = global_tests(fit.coefficients, spread_of, (fit.null[0], fit.totals.value), fit.null[1])
        holding = {"score"} if (known & ~fit.reliable).any() else set(tests)
        self.tests_ = {name: tests[name] for name in holding if np.isfinite(tests[name].statistic)}
        self._set_inference(fit, spread_of, self._model_based, float(self.confidence_level))

    def _needs(self) -> Needs:
        exact = self.times == "exact"
        return Needs(n_times=int(self.n_times), horizon=self.horizon, exact=exact, cause=int(self.cause))

    def _plan(self) -> Plan:
        return Plan(self.times, self.ties, float(self.alpha), int(self.max_iter), float(self.tol))

    def _penalty(self) -> sent.Penalty:
        return sent.Penalty(float(self.alpha), self.ties == "efron")

    def _lead(self, session: Session) -> str | None:
        if self.lead and self.lead not in session.sites:
            raise ConfigurationError(
                "no such site takes part", where=f"lead, {self.lead}", hint="Name one of the sites."
            )
        return self.lead

    def _effects_of(self, sites: Mapping[str, SurvivalData]) -> SiteEffects:
        """Fit data that the caller holds, site by site, as the sites would."""
        answers = {}
        for site, data in sites.items():
            part = CoxSite(site, data)
            part.state = self.agreed_
            answers[site] = CoxSite.fit_own.run(part, self._penalty())
        return self._effects(tuple(sites), answers)
