"""Which phenotypes go with an outcome: federated logistic regression on memberships that stay at the sites."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Answers, Session
from multicentre.federation.steps import Acknowledgement, SitePart
from multicentre.phenotyping.outcome import messages as sent
from multicentre.phenotyping.outcome import rounds as loops
from multicentre.phenotyping.outcome.fitted import OutcomeModel
from multicentre.phenotyping.outcome.maths import area_from_counts, odds_ratios, standard_errors, wald_p_values
from multicentre.phenotyping.outcome.phenotypes import PhenotypeFactors
from multicentre.phenotyping.outcome.rounds import Fit, Plan
from multicentre.phenotyping.outcome.site import OutcomeSite, check_bins

EXPLAINED_BY_SEPARATION = 0.9

LARGEST_COEFFICIENT = 10.0

ROUNDING = 1e-9


class SeparationWarning(UserWarning):
    """Phenotypes tell the outcomes apart almost without error, so that only the alpha holds coefficients back."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind."""
    for name, least in {"max_iter": 1, "n_bins": 2, "random_state": 0}.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    check_bins(given["n_bins"])
    for name, most in {"alpha": math.inf, "tol": math.inf, "test_size": 1.0}.items():
        value = given[name]
        known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (known and 0 <= value < most):
            raise ConfigurationError(f"{value!r} is not a number from 0 to below {most:g}", where=name)
    if abs(given["test_size"] - round(given["test_size"], 1)) > ROUNDING:
        raise ConfigurationError(
            "a share is not one of whole tenths", where="test_size", hint="Give 0.4, say; sites split in tenths."
        )
    if not isinstance(given["refit"], bool | np.bool_):
        raise ConfigurationError(f"{given['refit']!r} is neither true nor false", where="refit")


def warn_of_fit(fit: Fit, plan: Plan) -> None:
    """Warn of rounds that ended too early, and of phenotypes that tell outcomes apart almost without error."""
    if not fit.converged:
        warnings.warn(
            f"the rounds ended at max_iter={plan.max_iter} before coefficients settled to tol={plan.tol:g}.",
            ConvergenceWarning,
            stacklevel=4,
        )
    largest = float(np.abs(fit.model.coefficients[1:]).max())
    if explained(fit) > EXPLAINED_BY_SEPARATION or largest > LARGEST_COEFFICIENT:
        warnings.warn(
            "phenotypes tell the outcomes apart almost without error: the alpha alone holds coefficients back, and "
            "standard errors and p-values are of no use.",
            SeparationWarning,
            stacklevel=4,
        )


def explained(fit: Fit) -> float:
    """Return McFadden's share of the log-likelihood that the phenotypes explain: 0 for none, 1 for separation."""
    counts = np.array([fit.moments.n_outcomes, fit.moments.n_patients - fit.moments.n_outcomes])
    return 1.0 - fit.log_likelihood / float(xlogy(counts, counts / counts.sum()).sum())


class PhenotypeOutcome(OutcomeModel):
    """Logistic regression of an outcome (death in hospital, say) on patients' memberships in phenotypes.

    The sites hold event tensors with outcomes, and know the phenotypes' factors: each refits its own patients'
    memberships, which stay there. Newton and Raphson's rounds need sums over patients alone, so the fit is that of the
    pooled patients, whatever the sites' sizes; a site all of whose patients have the same outcome takes part.

    Parameters
    ----------
    phenotypes : fitted factorisation, path or PhenotypeFactors
        A fitted ``DPFact`` (or another method with ``factors_`` and ``codes_``), or the folder of a saved one. It
        is read when it is given. Its factors go to every site as they are.
    alpha : float, default 1.0
        Ridge: half of it times the squared coefficients is taken from the log-likelihood, the intercept left out, as
        ``LogisticRegression(C=1/alpha)`` of scikit-learn does. 0 for none.
    max_iter : int, default 25
        Newton steps, halvings included.
    tol : float, default 1e-8
        Rounds end when no coefficient would change by more.
    test_size : float, default 0.4
        Share of every site's patients with either outcome who are held out for the area under the curve (the paper's
        60-40 split), in whole tenths; 0 for none.
    refit : bool, default False
        Fit on all patients after the area was taken: coefficients are then those of everyone, and the area that of the
        training patients' fit.
    n_bins : int, default 4096
        Bins of scores from which the area under the curve is taken, at most 16,384. More give closer bounds. Unmasked,
        a site refuses bins with fewer patients of an outcome (but some) than its policy's minimum.
    random_state : int, default 0
        Seed of the split. Every site mixes it with the share and with its own data, so that nobody elsewhere knows
        who is held out: the same data are split alike each time, other data anew.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        Outcomes are told apart almost without error; standard errors and p-values are of no use then.

    Notes
    -----
    Every sum is exact. Masked, all patients of a sum stand behind it, and only the total over sites shows: a site with
    25 patients can hold out 40 % of them under a policy of 10. Unmasked, the guard counts the fewest patients with one
    outcome, or with one phenotype, at the site, held-out and training patients apart, and refuses where they are too
    few. Of patients who have both a rare outcome and a rare phenotype there may be fewer, and the derivatives reveal
    the sum of their memberships. A site with none of an outcome takes part.

    The area is that of `n_bins` bins of scores, whose borders follow from the coefficients. A pair of patients within
    one bin counts half: the area is off by at most half the share of such pairs, which `auc_bounds_` states for the
    patients at hand.

    Within a fit a site splits once, takes one mean and deviation for each group of patients, no coefficient above 1000,
    and scores its held-out patients by one model. Derivatives of a model that is sure of nearly everyone rest on the
    few of whom it is not: the guard is told how many those are in effect, and refuses where phenotypes tell the
    outcomes apart almost without error (a larger `alpha` helps). What remains: a coordinator who asks for many fits,
    or for derivatives at many coefficients, learns from their differences. The ledger shows that; there is no
    differential privacy here.

    p-values take the phenotypes as given. Where the same patients' outcomes chose the phenotypes, they are too small.
    Intervals lie about coefficients that the ridge draws towards 0, and do not make up for that; ``alpha=0`` gives
    the usual ones.

    References
    ----------
    .. [1] J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang, "Privacy-Preserving Tensor Factorization for
       Collaborative Health Data Analysis", CIKM 2019, section 5.6.
    .. [2] Y. Wu, X. Jiang, J. Kim, L. Ohno-Machado, "Grid Binary LOgistic REgression (GLORE): building shared models
       without sharing data", Journal of the American Medical Informatics Association 19 (2012), 758-764.
    """

    site_part: ClassVar[type[SitePart]] = OutcomeSite

    def __init__(
        self,
        phenotypes: object = None,
        *,
        alpha: float = 1.0,
        max_iter: int = 25,
        tol: float = 1e-8,
        test_size: float = 0.4,
        refit: bool = False,
        n_bins: int = 4096,
        random_state: int = 0,
    ) -> None:
        self.phenotypes = _read(phenotypes)
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.test_size = test_size
        self.refit = refit
        self.n_bins = n_bins
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters as scikit-learn does; `phenotypes` may be whatever the constructor takes."""
        if "phenotypes" in params:
            params["phenotypes"] = _read(params["phenotypes"])
        super().set_params(**params)
        return self

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        always = frozenset({"prepare", "sum_moments", "sum_derivatives"})
        return always | {"count_scores", "rank_own"} if self.test_size else always

    def auc_by_site(self) -> Answers[float]:
        """Ask each site of the last fit how well the model ranks its own held-out patients.

        Returns
        -------
        dict of str to float
            Exact area under the curve by site, of the training patients' fit. Each is a site's own answer and no term
            of a sum: the guard checks it and the ledger keeps it. NaN where the site refuses, because fewer of its
            held-out patients have the outcome (or do not) than its policy wants, and where it is not defined; the
            attribute ``refused`` holds the reasons of sites that refuse.

        Raises
        ------
        ConfigurationError
            Nobody was held out.
        """
        federation = self.session
        if not self.test_size:
            raise ConfigurationError("nobody was held out", where="test_size", hint="Fit with test_size=0.4, say.")
        answers = federation.ask(OutcomeSite.rank_own, self._training_model, skip_refusals=True)
        areas = {site: answer.area for site, answer in answers.items()}
        found = {site: math.nan if (area := areas.get(site)) is None else area for site in federation.sites}
        return Answers(found, answers.refused)

    def _fit(self, session: Session) -> None:
        check_parameters(self.get_params(deep=False))
        self.phenotypes_ = PhenotypeFactors.of(self.phenotypes)
        plan = loops.Plan(float(self.alpha), int(self.max_iter), float(self.tol))
        session.once("prepared", Acknowledgement, lambda: self._prepare(session))
        fit = loops.fit_model(session, plan, everyone=False)
        self.history_ = fit.history
        self._training_model = fit.model
        self._set_area(loops.count_held_out(session, fit) if self.test_size else None)
        if self.refit and self.test_size:
            fit = loops.fit_model(session, plan, everyone=True)
            self.history_ = [*self.history_, *fit.history]
        self._set_fit(fit)
        warn_of_fit(fit, plan)

    def _prepare(self, session: Session) -> Acknowledgement:
        known = self.phenotypes_
        ask = sent.Prepare(
            dict(known.codes),
            dict(known.factors),
            nonnegative=known.nonnegative,
            test_size=float(self.test_size),
            seed=int(self.random_state),
            n_bins=int(self.n_bins),
        )
        session.ask(OutcomeSite.prepare, ask)
        return Acknowledgement()

    def _set_area(self, counts: sent.ScoreCounts | None) -> None:
        self.auc_, self.auc_bounds_, self.n_held_out_ = None, None, 0.0
        if counts is not None:
            self.n_held_out_ = float(counts.with_outcome.sum() + counts.without.sum())
        if counts is not None and counts.with_outcome.any() and counts.without.any():
            self.auc_, *bounds = area_from_counts(counts.with_outcome, counts.without)
            self.auc_bounds_ = (bounds[0], bounds[1])

    def _set_fit(self, fit: loops.Fit) -> None:
        model, moments = fit.model, fit.moments
        self.coef_, self.spread_ = model.coefficients[1:], model.spread
        self.intercept_ = float(model.coefficients[0] - model.centre @ (self.coef_ / self.spread_))
        self.standard_errors_ = standard_errors(fit.information, float(self.alpha))[1:]
        self.p_values_ = wald_p_values(self.coef_, self.standard_errors_)
        self.odds_ratios_ = odds_ratios(self.coef_, self.standard_errors_)
        self.n_patients_, self.n_outcomes_ = moments.n_patients, moments.n_outcomes
        self.n_iter_, self.converged_ = len(fit.history), fit.converged


def _read(phenotypes: object) -> PhenotypeFactors | None:
    return None if phenotypes is None else PhenotypeFactors.of(phenotypes)
