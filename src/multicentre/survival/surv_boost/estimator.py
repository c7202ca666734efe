"""FedSurvBoost: boosting of survival models fitted at single sites, selected by their error summed over all sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import IntegrityError
from multicentre.estimator.parameters import OneOf, ParameterRanges, check_parameters
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import SurvivalMissing
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.fitted_models import Mixture, SurvivalModel
from multicentre.survival.fitted_models.derived import Recalibrated
from multicentre.survival.learners.cohort import warn_of_constant
from multicentre.survival.surv_boost import messages
from multicentre.survival.surv_boost.hypotheses import is_constant
from multicentre.survival.surv_boost.maths import weighted_median
from multicentre.survival.surv_boost.plan import RANGES, STEPS, Plan, make_plan
from multicentre.survival.surv_boost.rounds import Pass, PassPlan, boost, calibrate, find_staying, warn_of_dropped
from multicentre.survival.surv_boost.site import BoostSite
from multicentre.survival.times import time_to_share

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Number of bins per column in which trees look for thresholds.
N_BINS = 64


class FedSurvBoost(SurvivalEstimator):
    """Boosting of survival models over sites (AdaBoost.R2 with errors summed over sites), after FedSurvBoost.

    In each round every site fits a weak learner to its patients, drawn by their weights. All sites evaluate all
    hypotheses. The coordinator receives the sums of the weighted errors, selects the hypothesis with the smallest error
    and assigns it a vote. Patients with a large loss then receive more weight. The model is the mean of the selected
    survival curves, weighted by vote.

    Parameters
    ----------
    weak_learner : {"cox", "tree", "deepsurv"}, default "tree"
        Model fitted by the sites: a Cox model, a log-rank tree, or a neural network (extra ``deep``).
    n_estimators : int, default 50
        Maximum number of hypotheses.
    candidates : {"all", "best", "committee", "pool"}, default "all"
        ``all``: the sites' hypotheses, their mean (the committee), and a proportional hazards model fitted to all
        patients via sums. ``best``: only the sites' hypotheses (AdaBoost.F). ``committee``: only their mean
        (DistBoost.F). ``pool``: each site boosts separately before the first round, and the rounds select among all
        resulting hypotheses (PreWeak.F).
    loss : {"rmst", "median", "brier"}, default "rmst"
        Loss of a patient. ``rmst`` and ``median``: distance of the mean time up to the horizon, or of the median, from
        the event time; for a censored patient, only predictions before the end of follow-up count. ``brier``:
        integrated Brier score, weighted for censoring.
    norm : {"tau", "max"}, default "tau"
        Loss that counts as 1: the horizon (for Brier scores: 16), or the largest loss over all sites. The latter is
        determined via sums, digit by digit. It is the loss of one patient, so a policy with a minimum refuses it
        unmasked.
    learning_rate : float, default 0.1
        Factor of the votes, above 0 and at most 1.
    weight_cap : float or None, default 20.0
        Maximum weight as a multiple of the mean; None for no maximum.
    resample : bool, default True
        Draw as many patients as the site has, by their weights; otherwise fit a weighted learner.
    recalibrate : bool or "auto", default "auto"
        Replace the curves by those of a proportional hazards model on the ensemble's risk. Slope and baseline are
        computed via sums from out-of-fold risks: the boosting is repeated for each of `n_splits` parts of the patients.
        "auto" recalibrates only if this lowers the Brier score of the last part.
    n_iter_no_change : int, optional
        Hold out one of `n_splits` parts of the patients. Stop after this number of consecutive rounds without a lower
        Brier score of these patients, and return the ensemble of the best round.
    n_splits : int, default 3
        Number of parts, from 2 to 10.
    learner_params : mapping of str to object, optional
        Hyperparameters of the weak learner. cox: ``alpha``, ``ties``, ``min_events_leaf``; tree: ``max_depth``,
        ``min_samples_leaf``, ``min_events_leaf``, ``max_features``; deepsurv: those of ``NetworkSettings``. Under a
        policy with a minimum, every leaf has at least 15 patients, or the minimum if it is larger.
    n_times : int, default 64
        Number of times of the grid, at most 256.
    horizon : float, optional
        Last time; by default the time by which 95 % of the follow-ups ended.
    missing : {"mean", "indicator", "complete"}, default "mean"
        Handling of missing entries: fill with the mean over sites; fill and add an indicator column; or leave
        incomplete patients out. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed of the sites' draws. Each site combines it with a digest of its data.

    Attributes
    ----------
    stopped_because_ : str
        Reason why the rounds ended before `n_estimators`; empty if they did not.
    votes_, training_errors_ : array of shape (R,)
        Vote of each of the R selected hypotheses, and its weighted error on the training patients.
    chosen_ : tuple of str
        Origin of each hypothesis: a site, "committee of all sites", or "proportional hazards of all sites".
    dropped_ : tuple of str
        Sites and rounds without a valid learner.
    recalibrated_ : bool
        True if the curves were recalibrated.

    Raises
    ------
    ConfigurationError
        A parameter, or a hyperparameter of the weak learner, is out of its range.
    DataError
        No patient has an event, or no site fits a valid learner.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.
    MissingExtra
        The weak learner is "deepsurv" and torch is not installed (``pip install 'multicentre[deep]'``).

    Warns
    -----
    UserWarning
        At least half of the learners in the model predict the same for every patient, or no site fitted a valid one.

    Notes
    -----
    Sites' models leave unmasked, as arrays. Their leaves and curves rest on at least 15 patients (or the policy's
    minimum). Columns in which few patients differ are treated as constant. Curves decrease only at times of the grid
    with the minimum number of events; neighbouring times are grouped. The selected hypothesis reveals the site whose
    patients it was fitted to. A coordinator that forges hypotheses could learn from differences between error sums;
    masked sums hide the contribution of each site.

    References
    ----------
    .. [1] O. Harrak, B. Casella, S. Fonio, P. Fariselli, G. Mittone, C. Rollo, T. Sanavia, M. Aldinucci, "Federated
       AdaBoost for survival analysis", 2024, http://hdl.handle.net/2318/2030498.
    .. [2] H. Drucker, "Improving regressors using boosting techniques", ICML 1997, 107-115.
    .. [3] M. Polato, R. Esposito, M. Aldinucci, "Boosting the federation: cross-silo federated learning without
       gradient descent", IJCNN 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> time = rng.exponential(np.exp(-X[:, 0]))
    >>> data = mc.data.SurvivalData(X, time, np.ones(300))
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = mc.survival.FedSurvBoost("cox", n_estimators=4, recalibrate=False).fit(federation)
    >>> len(model.votes_), model.score(data) > 0.7
    (4, True)
    """

    may_be_missing: ClassVar[frozenset[str]] = frozenset({"training_errors_"})
    parameter_ranges: ClassVar[ParameterRanges] = RANGES
    saved_attributes: ClassVar[SavedAttributes] = {
        **SurvivalEstimator.saved_attributes,
        **dict.fromkeys(("votes_", "training_errors_", "_sizes", "stopped_because_", "recalibrated_"), PLAIN),
        **dict.fromkeys(("chosen_", "dropped_"), Saved(list, tuple)),
    }
    site_part: ClassVar[type[SitePart]] = BoostSite
    votes_: Floats
    training_errors_: Floats
    chosen_: tuple[str, ...]
    dropped_: tuple[str, ...]
    stopped_because_: str
    recalibrated_: bool
    _sizes: NDArray[np.int64]

    def __init__(
        self,
        weak_learner: Literal["cox", "tree", "deepsurv"] = "tree",
        *,
        n_estimators: int = 50,
        candidates: Literal["all", "best", "committee", "pool"] = "all",
        loss: Literal["rmst", "median", "brier"] = "rmst",
        norm: Literal["tau", "max"] = "tau",
        learning_rate: float = 0.1,
        weight_cap: float | None = 20.0,
        resample: bool = True,
        recalibrate: bool | Literal["auto"] = "auto",
        n_iter_no_change: int | None = None,
        n_splits: int = 3,
        learner_params: Mapping[str, Any] | None = None,
        n_times: int = 64,
        horizon: float | None = None,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        self.weak_learner = weak_learner
        self.n_estimators = n_estimators
        self.candidates = candidates
        self.loss = loss
        self.norm = norm
        self.learning_rate = learning_rate
        self.weight_cap = weight_cap
        self.resample = resample
        self.recalibrate = recalibrate
        self.n_iter_no_change = n_iter_no_change
        self.n_splits = n_splits
        self.learner_params = learner_params
        self.n_times = n_times
        self.horizon = horizon
        self.missing = missing
        self.random_state = random_state

    def _make_plan(self) -> Plan:
        return make_plan(self.get_params(deep=False))

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        plan = self._make_plan()
        steps = {"begin", "judge", "reweigh", STEPS[plan.weak_learner].name}
        if plan.norm == "max":
            steps |= {"mark_largest"}
        if plan.needs_censoring:
            steps |= {"count_censored"}
        if plan.with_cox or plan.recalibrate:
            steps |= {"sum_hazards", "sum_moments"}
        if plan.recalibrate:
            steps |= {"sum_risks"}
        if plan.recalibrate == "auto":
            steps |= {"judge_calibrated"}
        return frozenset(steps) | steps_of_agreement(self._needs(plan))

    def predict_time(self, X: Any, kind: Literal["median", "restricted_mean", "weighted_median"] = "median") -> Floats:
        """Return a time for each patient, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        kind : {"median", "restricted_mean", "weighted_median"}, default "median"
            Median or mean up to the horizon of the ensemble's curve; or the median, weighted by vote, of the times
            predicted by the hypotheses (mean or median, by the loss of the fit), as in AdaBoost.R2. The median of a
            curve that stays above one half is the horizon.

        Raises
        ------
        ConfigurationError
            `kind` is not one of these.
        """
        check_parameters({"kind": kind}, {"kind": OneOf("median", "restricted_mean", "weighted_median")})
        if kind != "weighted_median":
            return super().predict_time(X, kind)
        return self._predicted(X, self._weighted_median)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per selected hypothesis: its origin, its vote and its training error."""
        import pandas as pd

        check_is_fitted(self, "model_")
        return pd.DataFrame({"origin": self.chosen_, "vote": self.votes_, "training_error": self.training_errors_})

    def _results(self) -> dict[str, Any]:
        origins = {f"hypotheses of {name}": self.chosen_.count(name) for name in dict.fromkeys(self.chosen_)}
        results = {"hypotheses": len(self.votes_), **origins, "recalibrated": self.recalibrated_}
        return results | ({"stopped because": self.stopped_because_} if self.stopped_because_ else {})

    def _weighted_median(self, rows: Floats) -> Floats:
        by_median = self._make_plan().loss == "median"
        times = [
            time_to_share(part.survival(rows), self.times_) if by_median else part.restricted_mean(rows)
            for part in self._hypotheses()
        ]
        return weighted_median(np.column_stack(times), self.votes_)

    def _hypotheses(self) -> list[Mixture]:
        """Return the selected hypotheses, each as a mixture of its learners."""
        inner = self.model_.inner if isinstance(self.model_, Recalibrated) else self.model_
        mixture = cast("Mixture", inner)
        starts = np.concatenate([[0], np.cumsum(self._sizes)])
        parts = [slice(start, end) for start, end in pairwise(starts.tolist())]
        n_columns = len(self.agreed_.columns)
        return [Mixture.of(mixture.components[part], mixture.shares[part], n_columns) for part in parts]

    def _needs(self, plan: Plan) -> Needs:
        return Needs(int(self.n_times), self.horizon, n_bins=N_BINS if plan.weak_learner == "tree" else 0)

    def _fit(self, session: Session) -> None:
        plan = self._make_plan()
        self.agreed_ = self._agree(session, self._needs(plan))
        ones = np.ones(len(self.agreed_.times))
        staying = find_staying(session, self.agreed_) if plan.needs_censoring else ones
        n_splits = plan.n_splits if plan.n_iter_no_change is not None else 0
        main = PassPlan(plan, 0, n_splits, min(n_splits, 1))
        folds = range(1, plan.n_splits + 1) if plan.recalibrate else ()
        of_folds = replace(plan, n_iter_no_change=None)
        passes = [main, *(PassPlan(of_folds, fold, plan.n_splits, fold) for fold in folds)]
        result, *others = boost(session, self.agreed_, staying, passes)
        calibration = self._calibrate(session, plan, others[-1].ensemble.last) if others else None
        self._set_fit(result, calibration)
        components = result.model.components
        warn_of_constant(sum(map(is_constant, components)), len(components), "FedRSF or FedHazardBoost")
        warn_of_dropped(result)

    def _calibrate(self, session: Session, plan: Plan, brier: float) -> messages.Calibration | None:
        """Return the calibration of the out-of-fold risks, or None if not useful; `brier` is that of the last fold."""
        if plan.recalibrate == "auto" and not _helps(session, plan.n_splits, brier):
            return None
        calibration = session.once("calibration", messages.Calibration, lambda: calibrate(session, 0))
        return calibration if calibration.slope > 0 else None

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        if len({len(self.votes_), len(self.training_errors_), len(self.chosen_), len(self._sizes)}) > 1:
            raise IntegrityError("votes, errors and origins must have one entry per hypothesis", where="model")

    def _set_fit(self, result: Pass, calibration: messages.Calibration | None) -> None:
        ensemble, n_kept = result.ensemble, result.n_kept
        self.history_ = result.history
        self.votes_, self.training_errors_ = ensemble.votes[:n_kept], ensemble.errors[:n_kept]
        self.chosen_, self.dropped_ = ensemble.names[:n_kept], ensemble.dropped
        self.stopped_because_ = ensemble.stopped
        self.recalibrated_ = calibration is not None
        self._sizes = ensemble.sizes[:n_kept]
        self.model_: SurvivalModel = result.model
        if calibration is not None:
            parameters = calibration.slope, calibration.centre, calibration.spread, calibration.baseline
            self.model_ = Recalibrated.of(result.model, len(self.agreed_.columns), *parameters)


def _helps(session: Session, last: int, brier: float) -> bool:
    """Return whether a recalibration fitted on the other folds lowers the Brier score of the last fold."""
    candidate = session.once("calibration-tried", messages.Calibration, lambda: calibrate(session, last))
    if not candidate.slope > 0:
        return False
    evaluation = session.once(
        "calibration-judged", messages.BrierSum, lambda: session.sum(BoostSite.judge_calibrated, candidate)
    )
    return evaluation.brier / evaluation.n_held < brier
