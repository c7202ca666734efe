"""Federated Cox model with a shared baseline and effects of sites, fixed or random."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError, SeparationWarning
from multicentre.estimator.figures import Figure
from multicentre.estimator.formula import FORMULA
from multicentre.estimator.model_in_force import COMPUTING, Phrases
from multicentre.estimator.parameters import Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.estimator.weighting import COLUMN
from multicentre.statistics.chi_square import TestResult, chi_square_test
from multicentre.survival.agreement.horizon import horizon_in_force
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalMissing
from multicentre.survival.cox import rounds as cox_rounds
from multicentre.survival.cox.estimator import warn_of_fit
from multicentre.survival.cox.maths import hazard_ratios, wald_p_values
from multicentre.survival.cox.results import CoxResults
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.estimator import MISSING, cause_in_force
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.mixed_cox.maths import DISTRIBUTIONS, Distribution
from multicentre.survival.mixed_cox.messages import OwnEffect
from multicentre.survival.mixed_cox.rounds import MixedFit, Plan, check_several, fit_effects
from multicentre.survival.mixed_cox.site import MixedCoxSite

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Smallest tolerance with masked sums, which are rounded to fixed-point numbers: steps below are rounding.
MASKED_TOL = 1e-6


class FedMixedCox(CoxResults):
    """Federated Cox regression with one baseline hazard for all sites and an effect of each site.

    The hazard of a site is that of all sites times its effect: a fixed effect, or a random one (shared frailty).
    Coefficients and variance equal those of R's ``coxph`` with ``frailty(site, sparse=FALSE)``, or with the site as a
    factor, on the pooled patients with Breslow's ties. Effects stay at the sites; the coordinator sees sums over sites.
    For a separate baseline hazard per site (the site as stratum) use :class:`FedCox`.

    Parameters
    ----------
    site_effects : {"gamma", "gaussian", "fixed"}, default "gamma"
        "gamma": the effect has a gamma distribution with mean 1; maximum likelihood. "gaussian": its logarithm has a
        normal distribution; penalised likelihood, with the variance by restricted maximum likelihood. "fixed": one
        coefficient per site; a site without events has no finite effect, and its patients do not influence the
        coefficients.
    times : {"grid", "exact"}, default "grid"
        Times at which the baseline hazard is estimated: a grid of `n_times` agreed times, where events after the
        horizon do not count; or the times of all events, at most 1024. For "exact" the sites' policies must permit
        ``exact_times``, and sums must be masked unless the policy requires no minimum of patients.
    n_times : int, default 128
        Number of times of the grid, at most 256.
    horizon : float, optional
        Last time of the grid; by default the time by which 95 % of the follow-ups ended.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored (cause-specific hazard).
    formula : str, optional
        Covariates, see :class:`FedCox`.
    offset : str, optional
        Column that is added to the log hazard ratio.
    missing : {"complete", "indicator", "mean"}, default "complete"
        Handling of missing entries, see :class:`FedCox`.
    confidence_level : float, default 0.95
        Confidence level of the intervals.
    max_iter : int, default 50
        Maximum number of steps, halvings included, each of the fit without and the fit with effects of sites.
    tol : float, default 1e-8
        The rounds stop when no coefficient of a standardised column, and no logarithm of the baseline hazard and of a
        gamma variance, changes by more (at least 1e-6 with masked sums).

    Attributes
    ----------
    log_likelihood_ : float
        Log partial likelihood: with gamma effects integrated out, otherwise at the estimated effects.
    tests_ : dict of str to TestResult
        "wald": all coefficients are 0, unless one has no error. "site_effects", by the likelihood ratio: sites do not
        differ; not with gaussian effects.
    variance_ : float
        Variance of the random effects (of their logarithm if "gaussian"); 0 for fixed effects. It is also 0 if the
        sites do not differ beyond chance, and the fit is then that without effects of sites.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or there are too many times of events.
    DataError
        No patient has an event, a column is constant or varies by less than the rounding of masked sums, columns
        depend on each other, or there is one site only. With fixed effects, a column is constant within each site.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        The likelihood rises without bound as a coefficient grows, or a site without events has no finite fixed effect.

    Notes
    -----
    Standard errors are those for the estimated variance, as in R; they do not include its uncertainty.

    References
    ----------
    .. [1] T. M. Therneau, P. M. Grambsch, V. S. Pankratz (2003), Penalized survival models and frailty, Journal of
       Computational and Graphical Statistics 12, 156-175.
    .. [2] G. G. Nielsen et al. (1992), A counting process approach to maximum likelihood estimation in frailty models,
       Scandinavian Journal of Statistics 19, 25-43.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for site in ("lyon", "oslo", "porto", "turin"):
    ...     X = rng.normal(size=(100, 2))
    ...     time = rng.exponential(np.exp(-0.5 * X[:, 0] - 0.5 * rng.normal()))
    ...     end = rng.exponential(2.0, size=100)
    ...     sites[site] = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=["age", "dose"])
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.survival.FedMixedCox(n_times=16).fit(federation)
    >>> model.coef_.round(1).tolist()
    [0.4, 0.0]
    """

    site_part: ClassVar[type[SitePart]] = MixedCoxSite
    lacks: ClassVar[Mapping[str, str]] = {
        **CoxResults.lacks,
        "robust errors": "Robust errors over sites need many more sites than random effects",
        "weights": "Weights of patients have no agreed meaning next to random effects",
        "clusters": "The sites are the clusters",
        **dict.fromkeys(("ridge penalty", "elastic net"), "A penalty on slopes would bias the variances between sites"),
        "estimates by site": "A site alone has no variance between sites",
    }
    saved_attributes: ClassVar[SavedAttributes] = {**CoxResults.saved_attributes, "variance_": PLAIN}
    model_phrases: ClassVar[Phrases] = {
        "site_effects": {
            "fixed": "fixed effects of sites",
            "gamma": "gamma-distributed effects of sites (shared frailty)",
            "gaussian": "normally distributed effects of sites",
        },
        "times": {
            "grid": "a baseline hazard shared by all sites, on a grid of times",
            "exact": "a baseline hazard shared by all sites, at the times of all events",
        },
        "n_times": lambda model: f"at most {model.n_times} times of the grid" if model.times == "grid" else "",
        "horizon": horizon_in_force,
        "cause": cause_in_force,
        "formula": "covariates {}",
        "offset": "offset {}",
        **COMPUTING,
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "site_effects": OneOf(*DISTRIBUTIONS),
        "times": OneOf("grid", "exact"),
        "n_times": Integer(1, MAX_TIMES),
        "horizon": (None, Real(0, open="low")),
        "cause": Integer(1, 127),
        "formula": FORMULA,
        "offset": COLUMN,
        "missing": MISSING,
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
    }
    variance_: float

    def __init__(
        self,
        site_effects: Distribution = "gamma",
        *,
        times: Literal["grid", "exact"] = "grid",
        n_times: int = 128,
        horizon: float | None = None,
        cause: int = 1,
        formula: str | None = None,
        offset: str | None = None,
        missing: SurvivalMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 50,
        tol: float = 1e-8,
    ) -> None:
        self.site_effects = site_effects
        self.times = times
        self.n_times = n_times
        self.horizon = horizon
        self.cause = cause
        self.formula = formula
        self.offset = offset
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        exact = {"sum_exact_risk", "sum_exact_products", "sum_exact_effects", "tell_exact_effect"}
        grid = {"sum_risk", "sum_products", "sum_effects", "tell_effect"}
        steps = exact if self.times == "exact" else grid
        return steps_of_agreement(self._needs()) | steps | self._formula_steps() | self._naming_steps()

    def _fit(self, session: Session) -> None:
        if self.site_effects != "fixed":
            check_several(session)
        agreed, exact = self._agree(session, self._needs()), self.times == "exact"
        tol = max(float(self.tol), MASKED_TOL) if session.protection == "masked" else float(self.tol)
        plan = cox_rounds.Plan(self.times, "breslow", 0.0, int(self.max_iter), tol)
        null = cox_rounds.fit_by_rounds(session, agreed, plan)
        warn_of_fit(null, agreed.columns, int(self.max_iter))
        fit = fit_effects(session, null, Plan(self.site_effects, exact, int(self.max_iter), tol), agreed.columns)
        self.agreed_, self.history_, self._fitted = agreed, [*null.history, *fit.history], fit
        self.n_patients_, self.n_events_ = round(fit.sums.n_patients), round(fit.sums.n_events)
        self.converged_, self.variance_, self.lead_ = null.converged and fit.converged, fit.request.variance, ""
        self.log_likelihood_ = fit.log_likelihood
        self._reset_by_products()
        self._set_model(session, lambda: self._model(fit))
        self._infer(fit)
        self._test_effects(fit, null)
        self._warn_of_effects(fit)

    def _model(self, fit: MixedFit) -> CoxModel:
        # A site with the mean effect instead of the reference site.
        mean_effect = fit.sums.effect / fit.sums.n_patients if self.site_effects == "fixed" else 0.0
        request = fit.request
        return cox_rounds.model_with_baseline(
            self.agreed_, request.coefficients, request.increments, request.shift - mean_effect, self.n_patients_
        )

    def _infer(self, fit: MixedFit) -> None:
        spread = self.agreed_.spread
        self.coef_ = fit.request.coefficients / spread
        covariance = fit.covariance if fit.converged else np.full_like(fit.covariance, np.nan)
        self.covariance_ = covariance / np.outer(spread, spread)
        self.standard_errors_ = self.model_standard_errors_ = np.sqrt(np.diagonal(self.covariance_))
        self.p_values_ = wald_p_values(self.coef_, self.standard_errors_)
        self.hazard_ratios_ = hazard_ratios(self.coef_, self.standard_errors_, self.confidence_level)

    def _test_effects(self, fit: MixedFit, null: Fit) -> None:
        self.tests_: dict[str, TestResult] = {}
        has_error = ~np.isnan(self.standard_errors_)
        if has_error.all():
            statistic = float(self.coef_ @ np.linalg.pinv(self.covariance_, hermitian=True) @ self.coef_)
            self.tests_["wald"] = chi_square_test(statistic, len(self.coef_))
        if not (fit.converged and (null.converged or null.monotone.any())):
            return
        gain, n_sites = max(2.0 * (fit.log_likelihood - null.totals.value), 0.0), round(fit.sums.n_sites)
        if self.site_effects == "fixed" and n_sites > 1:
            self.tests_["site_effects"] = chi_square_test(gain, n_sites - 1)
        if self.site_effects == "gamma":  # a variance of 0 is at the end of its range
            self.tests_["site_effects"] = TestResult(gain, 1, 0.5 * float(chi2.sf(gain, 1)))

    def _warn_of_effects(self, fit: MixedFit) -> None:
        if not fit.converged:
            warnings.warn(
                f"the rounds ended at max_iter={self.max_iter} before the parameters converged. The fit has no "
                "standard errors.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if fit.between:
            warnings.warn(
                f"{', '.join(fit.between[:6])}: fixed effects of sites leave less than a tenth of the information. "
                "Differences between sites do not count: standard errors are large, and predictions for other sites "
                'lose most of the covariate. To use them, fit random effects: site_effects="gamma".',
                UserWarning,
                stacklevel=4,
            )
        if without := round(fit.sums.n_infinite):
            warnings.warn(
                f"{without} of {round(fit.sums.n_sites)} sites have no events, and no finite fixed effect. Their "
                "patients do not influence the coefficients.",
                SeparationWarning,
                stacklevel=4,
            )

    def site_effects_table(self) -> pd.DataFrame:
        """Request the effect of each site.

        Each answer describes a single site: it leaves unmasked, the guard checks it and the ledger records it.

        Returns
        -------
        pandas frame
            A row per site: logarithm of the effect, its standard error at the estimated parameters, and the hazard
            ratio. Fixed effects are relative to the first site by name. NaN for a site that refuses (its reason is in
            ``attrs["refused"]``) or that has no finite effect.

        Raises
        ------
        ConfigurationError
            The sites do not differ: the variance is 0.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        fit, session = self._fitted, self.session
        if self.site_effects != "fixed" and not fit.request.variance:
            raise ConfigurationError(
                "the variance of the effects must be positive; got 0, so that the effect of each site is 0",
                where="site_effects",
                hint="See variance_ and tests_.",
            )
        if self.times == "exact":
            answers = session.ask(MixedCoxSite.tell_exact_effect, fit.request, skip_refusals=True)
        else:
            answers = session.ask(MixedCoxSite.tell_effect, fit.request, skip_refusals=True)
        rows, none = [], OwnEffect(np.nan, np.nan, patients=0)
        for site in session.sites:
            answer = answers.get(site, none)
            is_reference = self.site_effects == "fixed" and site == fit.request.reference
            if not (answer.error or is_reference):
                answer = none
            rows.append((answer.effect, answer.error, float(np.exp(answer.effect))))
        names = ["effect", "standard_error", "hazard_ratio"]
        frame = pd.DataFrame(rows, index=list(session.sites), columns=names)
        frame.attrs["refused"] = answers.refused
        return frame

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the variance between sites."""
        table = super().summary()
        kinds = {"gamma": "gamma effects of sites", "gaussian": "gaussian effects of sites", "fixed": "fixed effects"}
        variance = "" if self.site_effects == "fixed" else f", variance {self.variance_:.4g}"
        table.attrs["remark"] = f"{table.attrs['remark'].rstrip('.')}; {kinds[self.site_effects]}{variance}."
        return table

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of hazard ratios, their forest plot, tests of terms, and curves of effects."""
        check_is_fitted(self, "model_")
        return [self._table(), *self._effects_and_terms()]

    def _needs(self) -> Needs:
        exact = self.times == "exact"
        return Needs(n_times=int(self.n_times), horizon=self.horizon, exact=exact, cause=int(self.cause))
