"""Federated multi-view probabilistic PCA, after Balelli, Silva and Lorenzi (2021)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Plan
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import Applicable, Only, ParameterRanges
from multicentre.multiview.agreement import Agreement, ViewScale, agree, agree_on_views
from multicentre.multiview.ppca import after, messages, private
from multicentre.multiview.ppca import rounds as loops
from multicentre.multiview.ppca.around import fit_around
from multicentre.multiview.ppca.checks import (
    PARAMETER_RANGES,
    check_dimensions,
    check_private_fit,
    check_without_privacy,
    warn_of_single_site_views,
)
from multicentre.multiview.ppca.figures import show_fit
from multicentre.multiview.ppca.fitted import MvPPCAModel, bic_of
from multicentre.multiview.ppca.maths.gauge import VarianceSums
from multicentre.multiview.ppca.maths.invariant import site_log_likelihood
from multicentre.multiview.ppca.maths.model import NoiseModel, Parameters
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.private import Clipping, default_radius, sum_moment_variances
from multicentre.multiview.ppca.maths.selection import select_lowest
from multicentre.multiview.ppca.planning import plan_fit
from multicentre.multiview.ppca.site import MvPPCASite

PPCAMethod = Literal["invariant", "hierarchical"]
_ALWAYS = frozenset(
    {"describe", "column_orders", "column_totals", "column_squares", "prepare", "sum_first_moments", "multiply_moments"}
) | {"evaluate"}
_ROUNDS = {
    "invariant": frozenset({"fit_shared"}),
    "hierarchical": frozenset({"fit_shared", "fit_around"}),
}


class FedMvPPCA(MvPPCAModel):
    """Federated multi-view probabilistic PCA.

    Every patient of every site has a position x in one latent space of q dimensions. Each view is a linear function of
    x with an offset and noise, ``t = W x + mu + eps`` (Balelli et al. 2021, equations 1 to 3). Sites may lack views,
    and patients may lack views or entries. Only sums over sites reach the coordinator.

    Parameters
    ----------
    n_components : int or sequence of int, default 2
        Number of latent dimensions, the paper's ``q``. If a sequence, the value with the lowest WAIC is selected. A
        warning is issued if that is the largest one.
    max_components : int, optional
        With a sequence: while the WAIC is lowest at the largest number tried, the next number is tried, up to this one.
    method : {"invariant", "hierarchical"}, default "invariant"
        ``"invariant"``: all sites share W, mu and the noise, and each has a separate case mix. The fit is federated
        EM, exact except for two weak priors (`case_mix_weight`, `loadings_sd`). It converges in about ten rounds if the
        model holds and in tens of rounds on other data. ``"hierarchical"``: afterwards, each site has separate
        parameters around a global law. Their between-centre variances are estimated by empirical Bayes;
        harmonisation requires them.
    max_iter : int, default 100
        Maximum number of rounds, the paper's ``R``.
    n_local_iter : int, default 15
        Number of local iterations per round, the paper's ``I`` (``"hierarchical"``).
    tol : float, default 1e-4
        A loop ends when two accepted rounds in a row each raised the objective by less than this, in nats per patient.
    scale : {"view", "feature", "none"}, default "view"
        Columns are centred and divided by one number per view, one per column, or not at all. One number per view
        leaves the noise of a view's columns comparable, which choosing ``n_components`` relies on; one per column suits
        columns of different units.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view (the paper), or one per column (factor analysis).
    ard : bool, default False
        Automatic relevance determination: loadings of dimensions that a view does not need shrink to 0.
    waic : bool, default False
        Compute ``waic_`` after the fit, by sampling at the sites.
    ddof : {0, 1}, default 1
        Between-centre sums of squares are divided by the number of sites minus `ddof`. 0 is the paper's maximum
        likelihood, which is too small with few sites.
    loadings_sd : float, default 0.3
        Prior standard deviation of a loading, in standard deviations of the view's columns (``"invariant"``, and the
        start of ``"hierarchical"``); ``inf`` is maximum likelihood. If sites with a view hardly differ along a latent
        dimension, the data do not determine the view's loadings on it. Not used with `ard`, which estimates the
        variances of a prior.
    case_mix_weight : float, default 100
        Weight, in patients, of a prior on the covariance of each site's latents; its mode is the average over sites.
        0 is maximum likelihood, without a prior of the loadings either, whose unit would not be determined; the
        covariance at a small site that lacks a view is then imprecise, and predictions of the view become unreliable.
    site_intercepts : bool, default True
        Each site has an offset of each column, drawn around the common mean (``"invariant"``; for views of at least
        three sites). The variance of the offsets between sites is estimated. Without them, the latent dimensions
        explain offsets of scanners and laboratories, and predictions of a lacking view are unreliable. Not used with
        `epsilon`, where all sites share one sum.
    small_views : bool, default False
        Allow as many latent dimensions as the smallest view has columns, or more.
    random_state : int, default 0
        Seed of starts and draws; the noise of differential privacy never comes from it.
    epsilon : float, optional
        Fit with (`epsilon`, `delta`)-differential privacy: hide whether any one patient is among a site's. A patient
        with several records, by the site's identifiers, counts with their mean. The sites then release a single noised
        sum, from which all else follows (``"invariant"`` only; each patient needs every entry).
    delta : float, default 1e-5
        Probability with which `epsilon` may fail; well below one over the number of patients.
    reference : mapping, optional
        Required with `epsilon`: centre and spread of each view's columns, in their order, as
        ``{"view": {"centre": [...], "spread": [...]}}``. They must be public (reference ranges of the laboratory, a
        published cohort): `epsilon` does not cover values computed from the data of the sites.
    clip : float, optional
        With `epsilon`: a patient's row, centred and divided by the reference, is shortened to this length; the noise
        grows with its square. By default ``1.2 sqrt(d)`` for d columns.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of all views.
    n_patients_ : int
        Number of patients of all sites.
    converged_ : bool
        Whether every loop ended by `tol`.
    history_ : list of dict
        One entry per round: `objective` and `log_likelihood` per patient at the best round so far, `refused` (1 if the
        round lowered the objective and was undone), and `phase`, which counts the loops from 0. The objective is the
        log-likelihood plus the log densities of the priors. In the loop around the global law both are lower bounds.
    explained_variance_ratio_ : dict of str to array of shape (q,)
        Share of each view's variance over all sites that each latent dimension explains.
    explained_variance_ : dict of str to float
        Share of each view's variance that all latent dimensions explain.
    training_ : dict of str to float
        MAE, log-likelihood per patient and cross-view MAE over the sites' own rows.
        With `epsilon` only the log-likelihood, of the noised moments.
    noise_angle_ : float or None
        Expected angle in degrees by which the noise turns the weakest latent dimension; None without `epsilon`.
    waic_path_, bic_path_ : dict of int to float
        WAIC and BIC by number of latent dimensions, where several were tried; empty otherwise.
    waic_ : float or None
        WAIC summed over sites (lower is better); None if it was not requested.

    References
    ----------
    .. [1] I. Balelli, S. Silva, M. Lorenzi, "A Probabilistic Framework for Modeling the Variability Across Federated
       Datasets of Heterogeneous Multi-View Observations", IPMI 2021.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.split_scenario(mc.datasets.simulate_sd(random_state=1), "K", n_sites=3, random_state=0)
    >>> federation = mc.Federation.in_process({name: site.data for name, site in sites.items()})
    >>> model = mc.multiview.FedMvPPCA(n_components=5).fit(federation)
    >>> model.transform(sites["centre-1"].data).shape[1]
    5
    """

    site_part: ClassVar[type[MvPPCASite]] = MvPPCASite
    # Compare the latent model with regression for the prediction of views; a published method predicts by its model.
    compares: ClassVar[bool] = True
    parameter_ranges: ClassVar[ParameterRanges] = PARAMETER_RANGES
    applicable: ClassVar[Applicable] = {
        **dict.fromkeys(
            ("n_local_iter", "ddof"), Only('method="hierarchical"', lambda model: model.method == "hierarchical")
        ),
        "delta": Only("epsilon", lambda model: model.epsilon is not None),
    }

    def __init__(
        self,
        n_components: int | Sequence[int] = 2,
        *,
        max_components: int | None = None,
        method: PPCAMethod = "invariant",
        max_iter: int = 100,
        n_local_iter: int = 15,
        tol: float = 1e-4,
        scale: ViewScale = "view",
        noise: NoiseModel = "isotropic",
        ard: bool = False,
        waic: bool = False,
        ddof: int = 1,
        loadings_sd: float = 0.3,
        case_mix_weight: float = 100.0,
        site_intercepts: bool = True,
        small_views: bool = False,
        random_state: int = 0,
        epsilon: float | None = None,
        delta: float = 1e-5,
        reference: private.Reference | None = None,
        clip: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.method = method
        self.max_iter = max_iter
        self.n_local_iter = n_local_iter
        self.tol = tol
        self.scale = scale
        self.noise = noise
        self.ard = ard
        self.waic = waic
        self.ddof = ddof
        self.loadings_sd = loadings_sd
        self.case_mix_weight = case_mix_weight
        self.site_intercepts = site_intercepts
        self.small_views = small_views
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.reference = reference
        self.clip = clip

    def privacy_plan(self) -> Plan | None:
        """Return the noise of the one release of a fit with `epsilon`; None without it."""
        if self.epsilon is None:
            return None
        self._check_parameters()
        return private.plan_noise(self.epsilon, self.delta)

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may request from a site."""
        if self.epsilon is not None:
            return frozenset({"describe", "prepare", "sum_outer_products"})
        drawn = (
            {"draw_waic", "check_enough_rows"}
            if self.waic or not isinstance(self.n_components, int | np.integer)
            else set()
        )
        compared = {"complete_products", "compare_predictions"} if self.compares else set()
        return _ALWAYS | _ROUNDS.get(self.method, frozenset()) | drawn | compared

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.epsilon is None:
            check_without_privacy(reference=self.reference, clip=self.clip)
            return
        check_private_fit(method=self.method, waic=self.waic, n_components=self.n_components, reference=self.reference)

    def _fit(self, session: Session) -> None:
        self.__dict__.pop("_law", None)  # of an earlier fit: it must not remain if this one fails
        self.waic_, self.noise_angle_ = None, None
        self.waic_path_, self.bic_path_ = {}, {}
        if not isinstance(self.n_components, int | np.integer):
            self._fit_best(session, self.n_components)
            return
        q = int(self.n_components)
        if self.epsilon is not None:
            self._fit_private(session, q)
            return
        agreement = session.once("agreement", Agreement, lambda: self._agree(session, q))
        self._take_units(agreement)
        plan = plan_fit(self, agreement, q, self._spread)
        start = session.once("start", messages.Shared, lambda: loops.find_start(session, plan, self.site_part))
        parameters, prior = self._run(session, plan, start)
        self.n_features_in_ = agreement.schema.n_features
        self._set_fitted(parameters, prior)
        self._describe_training(session)
        if self.compares:
            unit = self._spread / self.deviation_
            compared = after.compare_predictions(session, self.site_part, self._law_message(), agreement, unit)
            self._choice, self._completed = compared or (None, None)
        if self.waic:
            self.waic_ = after.draw_waic(session, self.site_part, self._law_message(), int(self.random_state))

    def _fit_best(self, session: Session, candidates: Sequence[int]) -> None:
        fits = fit_candidates(self, session.federation, candidates)
        waic = waic_of(fits)
        parameters = self.get_params()
        best = fits[select_lowest(waic)]
        self.__dict__.update({name: value for name, value in vars(best).items() if name not in parameters})
        self.waic_path_, self.bic_path_ = waic, {q: bic_of(fit) for q, fit in fits.items()}

    def _fit_private(self, session: Session, q: int) -> None:
        released = session.once("released", private.Released, lambda: self._release(session, q))
        clipping = self._clipping(released.schema.n_features)
        rows = private.PrivateRows(released, *private.read_reference(self.reference or {}, released.schema), clipping)
        self.noise_angle_ = private.warn_of_noise(rows.moments, q, session)
        agreement = rows.agreement()
        self._take_units(agreement)
        patterns = rows.patterns(self._centre, self._spread)
        parameters, shared = loops.fit_moments(session, plan_fit(self, agreement, q, self._spread), patterns)
        self._note(shared)
        self.n_features_in_ = agreement.schema.n_features
        self._set_fitted(parameters, None)
        (only,), law = patterns, self._standard_law()
        self.n_patients_ = only.moments.n
        self.observed_ = np.full(self.n_features_in_, float(self.n_patients_))
        self._take_explained(sum_moment_variances(only.moments, law, self.layout))
        self.training_ = {"log_likelihood": site_log_likelihood(patterns, law) / self.n_patients_}

    def _release(self, session: Session, q: int) -> private.Released:
        self.schema_ = agree_on_views(session, MvPPCASite)
        check_dimensions(q, self.schema_, small_views=self.small_views)
        self._centre, self._spread = private.read_reference(self.reference or {}, self.schema_)
        session.ask(MvPPCASite.prepare, self._standards(q, False))
        return private.ask_for_products(session, self.schema_, self._clipping(self.schema_.n_features))

    def _clipping(self, n_features: int) -> Clipping:
        return Clipping(float(self.clip or default_radius(n_features)), n_features)

    def _run(self, session: Session, plan: loops.Plan, start: messages.Shared) -> tuple[Parameters, Prior | None]:
        parameters, shared = loops.fit_shared(session, plan, start)
        if self.method == "invariant":
            self._note(shared)
            self._intercepts = loops.best_intercepts(shared.state, plan) * self._spread**2
            return parameters, None
        prior, around = fit_around(session, plan, shared.state)
        self._note(shared, around)
        return prior.centre(plan.layout), prior

    def _agree(self, session: Session, q: int) -> Agreement:
        agreement = agree(session, self.site_part)
        check_dimensions(q, agreement.schema, small_views=self.small_views)
        warn_of_single_site_views(agreement, len(session.sites))
        self._take_units(agreement)
        session.ask(self.site_part.prepare, self._standards(q, agreement.incomplete))
        if self.waic:
            session.ask(self.site_part.check_enough_rows, Nothing())
        return agreement

    def _standards(self, q: int, incomplete: bool) -> messages.Standards:
        return messages.Standards(
            views=tuple(self.schema_.views),
            columns={view: tuple(self.schema_.columns[view]) for view in self.schema_.views},
            sizes=dict(self.schema_.sizes),
            centre=self._centre,
            spread=self._spread,
            noise=self.noise,
            incomplete=incomplete,
            complete=self.epsilon is not None,
            n_components=q,
            case_mix_weight=float(self.case_mix_weight),
        )

    def _note(self, *phases: Rounds[Any], settled: bool | None = None) -> None:
        self.history_ = [entry | {"phase": float(i)} for i, rounds in enumerate(phases) for entry in rounds.history]
        self.converged_ = all(rounds.stopped for rounds in phases) if settled is None else settled
        if not self.converged_:
            warnings.warn(
                f"the rounds ended at max_iter={self.max_iter} before the objective settled to tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _law_message(self) -> messages.Law:
        law = self._standard_law()
        return messages.Law(law.loadings, law.mean, law.noise, self.deviation_)

    def _describe_training(self, session: Session) -> None:
        answer = session.sum(self.site_part.evaluate, self._law_message())
        self._take_explained(
            VarianceSums(answer.total_square, answer.square_after_axis, answer.square_after_all, answer.entries)
        )
        self.training_ = after.metrics_of(answer, self.layout.names)
        self.n_patients_ = round(answer.n_rows)

    def _take_explained(self, sums: VarianceSums) -> None:
        names = self.layout.names
        self.explained_variance_ratio_ = dict(zip(names, sums.explained, strict=True))
        self.explained_variance_ = dict(zip(names, (float(r) for r in sums.explained_by_all), strict=True))

    def evaluate(self, federation: Consortium) -> dict[str, float]:
        """Return MAE, cross-view MAE and log-likelihood per patient over the sites of a session, from sums only.

        Parameters
        ----------
        federation : Federation
            Sites with the model's views, for example held-out patients.

        Raises
        ------
        DataError
            A site has none of the model's views, or other columns.
        ConfigurationError
            The fit was differentially private, and its errors at the sites would not be.
        """
        check_is_fitted(self, "_law")
        if self.epsilon is not None:
            raise ConfigurationError(
                "epsilon must be None for evaluate; got a private fit",
                where="evaluate",
                hint="Use assess on patients whose data you hold.",
            )
        law = self._law_message()
        session = federation.begin(self.site_part)
        session.ask(self.site_part.prepare, self._standards(self.n_components_, False))
        return after.metrics_of(session.sum(self.site_part.evaluate, law), self.layout.names)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the fit's figures and tables."""
        check_is_fitted(self, "_law")
        return show_fit(self, sites, labels)


def fit_candidates(estimator: FedMvPPCA, federation: Consortium, candidates: Iterable[int]) -> dict[int, FedMvPPCA]:
    """Fit a copy of the estimator for each number of latent dimensions, with its WAIC.

    While the WAIC is lowest at the largest number, the next one is tried, up to the estimator's `max_components`.
    """

    def fit(q: int) -> FedMvPPCA:
        candidate: FedMvPPCA = clone(estimator).set_params(n_components=q, waic=True).fit(federation)
        return candidate

    fits = {q: fit(q) for q in candidates}
    while fits and select_lowest(waic_of(fits)) == max(fits) < (estimator.max_components or 0):
        fits[max(fits) + 1] = fit(max(fits) + 1)
    if len(fits) > 1 and select_lowest(waic_of(fits)) == max(fits):
        warnings.warn(
            f"the WAIC is lowest at the largest number of latent dimensions tried, {max(fits)}. Larger numbers may be "
            "better; set max_components to try them.",
            UserWarning,
            stacklevel=5,
        )
    return fits


def waic_of(fits: Mapping[int, FedMvPPCA]) -> dict[int, float]:
    """Return the WAIC of fits that requested it, by number of latent dimensions."""
    return {q: fit.waic_ for q, fit in fits.items() if fit.waic_ is not None}
