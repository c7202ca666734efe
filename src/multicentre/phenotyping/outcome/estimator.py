"""PhenotypeOutcome: federated logistic regression of an outcome on memberships, which stay at the sites."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Answers, Session
from multicentre.core.steps import Acknowledgement, SitePart
from multicentre.errors import ConfigurationError, SeparationWarning
from multicentre.estimator.parameters import SEED, Flag, Integer, ParameterRanges, Real
from multicentre.phenotyping.outcome import messages
from multicentre.phenotyping.outcome import rounds as loops
from multicentre.phenotyping.outcome.fitted import OutcomeModel
from multicentre.phenotyping.outcome.maths import area_from_counts, odds_ratios, standard_errors, wald_p_values
from multicentre.phenotyping.outcome.phenotypes import PhenotypeFactors
from multicentre.phenotyping.outcome.rounds import Fit, Plan
from multicentre.phenotyping.outcome.site import MAX_BINS, OutcomeSite

# McFadden's share from which a warning follows; complete separation has a share of 1.
EXPLAINED_BY_SEPARATION = 0.9
# Log odds per standard deviation: an odds ratio above 20,000 is a sign of separation, not of an association.
MAX_COEFFICIENT = 10.0
# Distance of a share from whole tenths that floating-point arithmetic can cause, such as 0.1 + 0.2.
ROUNDING = 1e-9


def warn_of_fit(fit: Fit, plan: Plan) -> None:
    """Warn of rounds that ended too early, and of phenotypes that separate the outcomes almost without error."""
    if not fit.converged:
        warnings.warn(
            f"the rounds ended at max_iter={plan.max_iter} before coefficients settled to tol={plan.tol:g}.",
            ConvergenceWarning,
            stacklevel=4,
        )
    largest = float(np.abs(fit.model.coefficients[1:]).max())
    if explained(fit) > EXPLAINED_BY_SEPARATION or largest > MAX_COEFFICIENT:
        warnings.warn(
            "phenotypes separate the outcomes almost without error: only alpha keeps the coefficients finite, and "
            "standard errors and p-values are invalid.",
            SeparationWarning,
            stacklevel=4,
        )


def explained(fit: Fit) -> float:
    """Return McFadden's share of the log-likelihood that the phenotypes explain: 0 for none, 1 for separation."""
    counts = np.array([fit.moments.n_outcomes, fit.moments.n_patients - fit.moments.n_outcomes])
    return 1.0 - fit.log_likelihood / float(xlogy(counts, counts / counts.sum()).sum())


class PhenotypeOutcome(OutcomeModel):
    """Logistic regression of an outcome, such as death in hospital, on patients' memberships in phenotypes.

    The sites hold event tensors with outcomes and receive the phenotypes' factors. Each refits the memberships of its
    patients, which stay at the site. Newton-Raphson rounds need only sums over patients, so the fit equals that of the
    pooled patients. A site at which all patients have the same outcome can take part.

    Parameters
    ----------
    phenotypes : fitted factorisation, path or PhenotypeFactors
        A fitted ``DPFact`` (or another method with ``factors_`` and ``codes_``), or the folder of a saved one, which
        is read by the constructor. Its factors are sent to every site unchanged.
    alpha : float, default 1.0
        Ridge: half of it times the squared coefficients, without the intercept, is subtracted from the log-likelihood,
        as in ``LogisticRegression(C=1/alpha)`` of scikit-learn. 0 for no ridge.
    max_iter : int, default 25
        Maximum number of Newton steps, halvings included.
    tol : float, default 1e-8
        The rounds end when no coefficient changes by more than this (at least 1e-7 with masked sums).
    test_size : float, default 0.4
        Share of every site's patients with either outcome who are held out for the area under the curve (the paper's
        60-40 split), in whole tenths; 0 for none.
    refit : bool, default False
        Fit on all patients after the area was computed. The coefficients are then those of all patients, and the area
        is that of the fit on training patients.
    n_bins : int, default 4096
        Bins of scores from which the area under the curve is computed, at most 16,384. More give closer bounds.
        Unmasked, a site refuses bins with at least one patient of an outcome but fewer than its policy's minimum.
    random_state : int, default 0
        Seed of the split. Every site combines it with the share and with its data, so that the held-out patients cannot
        be derived elsewhere. The same data are split in the same way each time, changed data differently.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    SeparationWarning
        Phenotypes separate the outcomes almost without error; standard errors and p-values are then invalid.

    Notes
    -----
    Every sum is exact. Masked, a sum counts all its patients, and only the total over sites is visible: a site with
    25 patients can hold out 40 % of them under a policy of 10. Unmasked, the guard counts the fewest patients with one
    outcome, or with one phenotype, at the site, separately for held-out and training patients, and refuses sums over
    too few. Fewer patients may have both a rare outcome and a rare phenotype, and the derivatives reveal the sum of
    their memberships.

    The area is computed from `n_bins` bins of scores, with borders that follow from the coefficients. A pair of
    patients within one bin counts half. The error of the area is therefore at most half the share of such pairs;
    `auc_bounds_` contains these bounds.

    Within a fit a site draws one split, accepts one mean and deviation per group of patients and coefficients up to
    1000, and scores its held-out patients by one model. If most predicted probabilities are close to 0 or 1, the
    derivatives depend on the few other patients. The guard receives the effective number of patients, and refuses if
    the phenotypes separate the outcomes almost without error (use a larger `alpha`). A risk remains: a coordinator who
    requests many fits, or derivatives at many coefficients, can compare them. The ledger records these requests; the
    fit has no differential privacy.

    p-values treat the phenotypes as fixed. They are too small if the phenotypes were selected by the outcomes of the
    same patients. Intervals are centred at coefficients that the ridge shrinks towards 0, without a correction;
    ``alpha=0`` gives the usual intervals.

    References
    ----------
    .. [1] J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang, "Privacy-Preserving Tensor Factorization for
       Collaborative Health Data Analysis", CIKM 2019, section 5.6.
    .. [2] Y. Wu, X. Jiang, J. Kim, L. Ohno-Machado, "Grid Binary LOgistic REgression (GLORE): building shared models
       without sharing data", Journal of the American Medical Informatics Association 19 (2012), 758-764.

    Examples
    --------
    >>> import multicentre as mc
    >>> events = mc.datasets.simulate_planted(600, n_sites=3, random_state=0)
    >>> sites = {name: events.tensor.take(events.sites == name) for name in set(events.sites)}
    >>> federation = mc.Federation.in_process(sites)
    >>> phenotypes = mc.phenotyping.DPFact(rank=3, vocabulary=events.tensor.codes, tol=0.05).fit(federation)
    >>> outcome = mc.phenotyping.PhenotypeOutcome(phenotypes).fit(federation)
    >>> outcome.coef_.shape
    (3,)
    """

    site_part: ClassVar[type[SitePart]] = OutcomeSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "alpha": Real(0),
        "max_iter": Integer(1),
        "tol": Real(0),
        "test_size": Real(0, 1, open="high"),
        "refit": Flag(),
        "n_bins": Integer(2, MAX_BINS),
        "random_state": SEED,
    }

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
        """Set parameters as in scikit-learn; `phenotypes` takes the same values as in the constructor."""
        if "phenotypes" in params:
            params["phenotypes"] = _read(params["phenotypes"])
        super().set_params(**params)
        return self

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        always = frozenset({"prepare", "sum_moments", "sum_derivatives"})
        return always | {"count_scores", "compute_site_auc"} if self.test_size else always

    def auc_by_site(self) -> Answers[float]:
        """Request the area under the curve for the held-out patients of each site of the last fit.

        Returns
        -------
        dict of str to float
            Exact area under the curve by site, of the training patients' fit. Each is the answer of one site
            and not a term of a sum: the guard checks it and the ledger records it. NaN where the site refuses, because
            fewer of its held-out patients have the outcome (or do not) than its policy requires, and where undefined.
            The attribute ``refused`` holds the reasons of sites that refuse.

        Raises
        ------
        ConfigurationError
            No patient was held out.
        """
        check_is_fitted(self, "coef_")
        federation = self.session
        if not self.test_size:
            raise ConfigurationError(
                "test_size must be above 0 for auc_by_site; got 0", where="test_size", hint="Fit with test_size=0.4."
            )
        answers = federation.ask(OutcomeSite.compute_site_auc, self._training_model, skip_refusals=True)
        areas = {site: answer.area for site, answer in answers.items()}
        area_by_site = {site: math.nan if (area := areas.get(site)) is None else area for site in federation.sites}
        return Answers(area_by_site, answers.refused)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if abs(self.test_size - round(self.test_size, 1)) > ROUNDING:
            raise ConfigurationError(
                f"test_size must be a multiple of 0.1; got {self.test_size}",
                where="test_size",
                hint="Set test_size=0.4.",
            )

    def _fit(self, session: Session) -> None:
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
        phenotypes = self.phenotypes_
        request = messages.Prepare(
            dict(phenotypes.codes),
            dict(phenotypes.factors),
            nonnegative=phenotypes.nonnegative,
            test_size=float(self.test_size),
            seed=int(self.random_state),
            n_bins=int(self.n_bins),
        )
        session.ask(OutcomeSite.prepare, request)
        return Acknowledgement()

    def _set_area(self, counts: messages.ScoreCounts | None) -> None:
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
        self.converged_ = fit.converged


def _read(phenotypes: object) -> PhenotypeFactors | None:
    return None if phenotypes is None else PhenotypeFactors.of(phenotypes)
