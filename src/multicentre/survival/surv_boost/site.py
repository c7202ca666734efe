"""Site part of FedSurvBoost: all steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

The model of a single site leaves as arrays in which every leaf and curve rests on sufficiently many patients. Losses,
weights, risks and counts are terms of sums over sites; they are the same masked and unmasked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message
from multicentre.core.steps import Acknowledgement, step
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement import messages as agreeing
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.fitted_models import CoxModel, SurvivalModel, Trees
from multicentre.survival.fitted_models.derived import recalibrate_curves
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.kernels.risk_sets import RiskSets, weighted_products
from multicentre.survival.learners.cohort import fit_cox, group_for_travel
from multicentre.survival.learners.tree import fit_trees
from multicentre.survival.surv_boost import messages
from multicentre.survival.surv_boost import messages as limits
from multicentre.survival.surv_boost.hypotheses import HypothesisPredictions, check_shares, read_learners
from multicentre.survival.surv_boost.maths import (
    Rule,
    brier_losses,
    brier_tables,
    decide,
    effective_number,
    mark_bin,
    normalised,
    resample,
    reweigh,
    scale_weights,
    share_out,
    split_in_folds,
)
from multicentre.survival.surv_boost.passes import PassState, check_number, state_of, with_state
from multicentre.survival.times import restricted_mean

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
M = TypeVar("M", bound=SurvivalModel)
Learn = Callable[[Patients, Floats, np.random.Generator], M]
# Labels of the random streams: the folds, and the draws for hypotheses.
FOLDS = 1
# Differs from FOLDS, so that the two streams of a seed are separate.
HYPOTHESES = 2


class BoostSite(SurvivalPart):
    """Site part of FedSurvBoost."""

    method: ClassVar[str] = "fed-surv-boost"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = messages.Memory
    session_memory: ClassVar[tuple[str, ...]] = ("_number",)
    lengths: ClassVar[Lengths] = {
        "K": "times of the grid",
        "T": "trees",
        "m": "nodes of all trees",
        "L": "leaves of all trees",
        "l": "hidden layers",
        "p": "parameters of all layers",
        "q": "models that are judged, or combinations of them",
    }
    _number = 0  # of the pass that the latest request named

    def __init__(self, site: str, data: Any) -> None:
        super().__init__(site, data)
        self._losses: dict[int, Floats] = {}
        self._opinions: dict[int, HypothesisPredictions] = {}

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients of the Cox model of all sites, or of this site; 0 for other requests."""
        if isinstance(request, messages.Coefficients):
            return len(request.coefficients)
        return len(self.data.columns) if isinstance(request, messages.FitCox) else 0

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Begin) -> Acknowledgement:
        """Begin a pass of boosting: split patients into folds, with equal weights for all who are not held out."""
        memory = self.memory
        limits.check_begin(request, memory)
        self._number, folds = check_number(request.of_pass), memory.folds
        if request.n_splits and not memory.n_splits:
            rng = self.generator(request.seed, FOLDS, self._data_seed)
            folds = split_in_folds(self.patients.happened.astype(np.int64), request.n_splits, rng)
        held = (folds == request.held) & (request.held > 0)
        state = replace(
            self.current,
            log_weights=np.where(held, -np.inf, -np.log(memory.n_patients)),
            held=request.held,
            curves=np.zeros((int(held.sum()), len(memory.times))),
            votes=0.0,
            stopped=False,
        )
        n_splits = request.n_splits or memory.n_splits
        common = {"n_splits": n_splits, "folds": folds, "loss": request.loss, "staying": request.staying}
        self.state = with_state(memory, self._number, state, **common)
        return Acknowledgement()

    @step(releases=CoxModel, when="every round")
    def fit_cox(self, request: messages.FitCox) -> CoxModel:
        """Fit a Cox model to the site's weighted patients; the coordinator needs the model itself, not a sum."""

        def learn(patients: Patients, weights: Floats, _: np.random.Generator) -> CoxModel:
            ties = limits.known_ties(request.ties)
            return fit_cox(patients, weights, ridge=request.ridge, ties=ties, min_events_leaf=request.min_events_leaf)

        return self._fit(request, CoxModel, learn)

    @step(releases=Trees, when="every round")
    def fit_tree(self, request: messages.FitTree) -> Trees:
        """Grow a tree on the site's weighted patients; the coordinator needs the tree itself, not a sum."""
        settings = limits.tree_settings(request, self.least_behind)

        def learn(patients: Patients, weights: Floats, rng: np.random.Generator) -> Trees:
            return fit_trees(patients, weights[None], settings, rng)

        return self._fit(request, Trees, learn)

    @step(releases=Network, when="every round")
    def fit_network(self, request: messages.FitNetwork) -> Network:
        """Train a network on the site's weighted patients; the coordinator needs the network itself, not a sum."""
        from multicentre.survival.learners.networks import fit_network

        settings = limits.network_settings(request)

        def learn(patients: Patients, weights: Floats, rng: np.random.Generator) -> Network:
            return fit_network(patients, weights, settings, int(rng.integers(2**31)))

        return self._fit(request, Network, learn)

    @step(releases=messages.Errors, when="every round", summed=True)
    def judge(self, request: messages.Hypotheses) -> messages.Errors:
        """Receive the hypotheses of all sites, check them, and sum the weighted losses of each."""
        self._number = check_number(request.of_pass)
        if len(request.lengths):
            self._receive(request)
        weights = np.exp(self._scaled(request))
        return messages.Errors(weights @ self.losses, float(weights.sum()), patients=self._behind_weights(weights))

    @step(releases=messages.LossBins, when="every round", summed=True)
    def mark_largest(self, request: messages.Search) -> messages.LossBins:
        """Mark the bin of the site's largest loss; unmasked, it is the loss of one patient."""
        self._number = check_number(request.of_pass)
        limits.check_search(request, len(self.current.shares))
        losses = self.losses[np.isfinite(self.current.log_weights)]
        if not len(losses):
            return messages.LossBins(np.zeros((losses.shape[1], 64)), patients=0)
        return messages.LossBins(
            mark_bin(losses.max(axis=0), request.low, request.width), patients=self.behind(np.ones(1))
        )

    @step(releases=messages.Weighed, when="every round", summed=True)
    def reweigh(self, request: messages.Chosen) -> messages.Weighed:
        """Reweight the patients by the hypothesis of the round, and update the curves of held-out patients."""
        self._number = check_number(request.of_pass)
        limits.check_chosen(request, len(self.current.shares))
        losses = np.clip(self.losses[:, request.index] / request.scale, 0.0, 1.0)
        log_weights = reweigh(self._scaled(request), losses, request.factor)
        self._keep(log_weights=log_weights)
        brier = self._follow(request)
        weights, n_held = np.exp(log_weights), len(self.current.curves)
        behind = self.behind(np.array([np.floor(effective_number(weights) + 1e-6), n_held]))
        return messages.Weighed(float(weights.sum()), float(n_held), brier, patients=behind)

    @step(releases=messages.Censorings, when="once", summed=True)
    def count_censored(self, request: agreeing.OfCause) -> messages.Censorings:
        """Count censored patients and events by time, for the probability of not being censored."""
        patients, n_times = self.patients, len(self.memory.times)
        censored = np.bincount(patients.bins[~patients.happened], minlength=n_times + 1).astype(np.float64)
        events = np.bincount(patients.bins[patients.happened], minlength=n_times)[:n_times].astype(np.float64)
        return messages.Censorings(censored, events, patients=self.behind(np.concatenate([censored, events])))

    @step(releases=messages.Hazards, when="every round", summed=True)
    def sum_hazards(self, request: messages.Coefficients) -> messages.Hazards:
        """Sum events and hazard ratios by time, for a proportional hazards model on columns or on risks."""
        sets, behind = self._risk_sets(request)
        ratios = limits.ratios(sets.rows, request.coefficients)
        by_time = sets.sums(ratios, "breslow").risk
        return messages.Hazards(sets.events, sets.event_sum, sets.at_risk(ratios), by_time, patients=behind)

    @step(releases=messages.Moments, when="every round", summed=True)
    def sum_moments(self, request: messages.Curvature) -> messages.Moments:
        """Sum products of covariates, weighted by their hazards, for the second derivatives."""
        sets, behind = self._risk_sets(request)
        limits.check_hazard(request.hazard, sets.n_times)
        ratios = limits.ratios(sets.rows, request.coefficients)
        own_hazards = sets.own_hazards(ratios, request.hazard, np.zeros_like(request.hazard))
        return messages.Moments(weighted_products(sets.rows, own_hazards), patients=behind)

    @step(releases=messages.RiskMoments, when="once", summed=True)
    def sum_risks(self, request: messages.Coefficients) -> messages.RiskMoments:
        """Sum the ensembles' risks, for their mean and standard deviation."""
        included = self._calibrating(request.left_out)
        risks = self.memory.risks[included]
        behind = self.behind(_sizes(included))
        return messages.RiskMoments(float(len(risks)), float(risks.sum()), float((risks**2).sum()), patients=behind)

    @step(releases=messages.BrierSum, when="once", summed=True)
    def judge_calibrated(self, request: messages.Calibration) -> messages.BrierSum:
        """Sum the Brier scores of recalibrated curves over the patients of the last fold."""
        memory = self.memory
        held = np.asarray((memory.folds == memory.n_splits) & (memory.n_splits > 0))
        limits.check_calibration(request, len(memory.times))
        curves = recalibrate_curves(memory.risks[held], request.slope, request.centre, request.spread, request.baseline)
        return messages.BrierSum(float(held.sum()), self._brier(curves, held), patients=self.behind(_sizes(held)))

    def first_memory(self, agreed: agreeing.Prepared) -> messages.Memory:
        """Return the state of a site before any boosting, with the agreement."""
        n_patients = len(self.data)
        agreement = {name: getattr(agreed, name) for name in agreeing.Prepared.declarations()}
        by_pass: dict[str, Any] = {field.name: {} for field in fields(PassState)}
        return messages.Memory(
            **agreement,
            **by_pass,
            n_splits=0,
            folds=np.zeros(n_patients, dtype=np.int64),
            loss="rmst",
            staying=np.ones(len(agreed.times)),
            risks=np.zeros(n_patients),
        )

    @property
    def current(self) -> PassState:
        """State in the pass that the latest request named."""
        return state_of(self.memory, self._number)

    @property
    def memory(self) -> messages.Memory:
        """State of the site between rounds.

        Raises
        ------
        ConfigurationError
            The site has not agreed to a fit.
        """
        return cast("messages.Memory", self.agreed)

    @cached_property
    def learning(self) -> Patients:
        """Patients, with columns and times grouped so that the site's models may leave."""
        return group_for_travel(self.data, self.memory, self.least_behind)

    @property
    def losses(self) -> Floats:
        """Loss of every patient under every received hypothesis, divided by the unit of the loss, shape (n, q)."""
        if self._number not in self._losses:
            memory = self.memory
            self._losses[self._number] = self.opinions.losses(self.current.shares, memory.loss, memory.staying)
        return self._losses[self._number]

    @property
    def opinions(self) -> HypothesisPredictions:
        """Predictions of the received learners for the patients.

        Raises
        ------
        ConfigurationError
            The site received no learners.
        """
        current = self.current
        if not len(current.lengths):
            raise ConfigurationError(
                "judge needs hypotheses; got no hypotheses", where="judge", hint="Start the fit again."
            )
        if self._number not in self._opinions:
            self._opinions[self._number] = HypothesisPredictions(self._read(current), self.patients)
        return self._opinions[self._number]

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return the number of patients behind a sum; unmasked, also of those whom received models tell from the rest.

        Losses of models that are made up, and differences of two losses, may depend on one patient.
        """
        fewest = super().behind(counts)
        has_models = isinstance(self.state, messages.Memory) and len(self.current.lengths) > 0
        return min(fewest, self.opinions.fewest_told_apart) if has_models and not self.masked else fewest

    @property
    def _held(self) -> Flags:
        return self.current.holds_out(self.memory.folds)

    @cached_property
    def _data_seed(self) -> int:
        return int(self.data.digest()[:16], 16)

    def _receive(self, request: messages.Hypotheses) -> None:
        opinions = HypothesisPredictions(self._read(request), self.patients)
        check_shares(request.shares, len(opinions))
        self._keep(packed=request.packed, lengths=request.lengths, shares=request.shares)
        self._opinions[self._number] = opinions
        self._losses.pop(self._number, None)

    def _keep(self, **changes: Any) -> None:
        """Change the state in the pass that the latest request named."""
        self.state = with_state(self.memory, self._number, replace(self.current, **changes))

    def _read(self, sent_: messages.Hypotheses | PassState) -> Sequence[SurvivalModel]:
        return read_learners(sent_.packed, sent_.lengths, self.memory.times, len(self.memory.columns))

    def _scaled(self, request: messages.Scale) -> Floats:
        return scale_weights(self.current.log_weights, request.log_total, request.log_cap)

    def _fit(self, request: messages.Fit, kind: type[M], learn: Learn[M]) -> M:
        """Fit a model to drawn or weighted patients; return an empty one for too few patients or an invalid fit."""
        self._number = check_number(request.of_pass)
        if self.current.stopped:
            # Replaced at all sites or at none, because the sites' transcripts must be the same.
            self._keep(stopped=True)
            return kind.empty()
        rng = self.generator(request.seed, HYPOTHESES, request.round, self.current.held, self._data_seed)
        weights = normalised(self._scaled(request))
        drawn = resample(weights, rng) if request.resample else weights
        behind = int((drawn > 0).sum() if request.resample else effective_number(drawn) + 1e-6)
        model = kind.empty() if not behind else learn(self.learning, drawn, rng)
        behind = min(behind, cast("int", model.patients)) if kind is Trees else behind
        if behind < limits.fewest_in_leaf(1, self.least_behind) or not self._is_valid(model):
            model, behind = kind.empty(), 0
        if request.alone and not self._boost_alone(model, request):
            return kind.empty()
        return replace(model, patients=behind)

    def _is_valid(self, model: SurvivalModel) -> bool:
        try:
            model.valid(len(self.memory.columns))
        except MessageError:
            return False
        return bool(np.isfinite(model.restricted_mean(self.learning.rows)).all())

    def _boost_alone(self, model: SurvivalModel, request: messages.Fit) -> bool:
        """Reweight by the site's model, independently of other sites, and return whether the model is selected."""
        if model.is_empty:
            self._keep(stopped=True)
            return False
        memory, log_weights = self.memory, self._scaled(request)
        opinion = HypothesisPredictions([model], self.patients)
        losses = opinion.losses(np.ones((1, 1)), memory.loss, memory.staying)[:, 0]
        weights = normalised(log_weights)
        largest = float(losses[weights > 0].max()) if request.by_largest else 1.0
        rule, total = Rule(limits.checked_rate(request.rate)), float(weights.sum())
        verdict = decide(np.array([weights @ losses]), np.array([largest]), total, rule, is_first=request.round == 1)
        if verdict.is_selected and largest > 0:
            log_weights = reweigh(log_weights, np.clip(losses / largest, 0.0, 1.0), verdict.vote)
        self._keep(log_weights=share_out(log_weights, memory.n_patients), stopped=bool(verdict.stop))
        return verdict.is_selected

    def _follow(self, request: messages.Chosen) -> float:
        """Add the hypothesis to the ensemble for held-out patients; return the sum of their Brier scores."""
        current, held = self.current, self._held
        if not len(current.curves):
            return 0.0
        hypothesis_curves, row = self.opinions.curves(current.shares[request.index])
        curves, votes = current.curves + request.vote * hypothesis_curves[row[held]], current.votes + request.vote
        self._keep(curves=curves, votes=votes)
        if self._number:
            memory = self.memory
            risks = memory.risks.copy()
            risks[held] = -restricted_mean(curves / votes, memory.times) / memory.times[-1]
            self.state = replace(memory, risks=risks)
        return self._brier(curves / votes, held)

    def _brier(self, curves: Floats, held: Flags) -> float:
        memory, patients = self.memory, self.patients
        tables = brier_tables(curves, memory.times, memory.staying)
        row = np.arange(len(curves))
        return float(brier_losses(tables, row, patients.bins[held], patients.happened[held], memory.staying).sum())

    def _calibrating(self, left_out: int) -> Flags:
        limits.check_folds(self.memory, left_out)
        return np.asarray(self.memory.folds != left_out)

    def _risk_sets(self, request: messages.Coefficients) -> tuple[RiskSets, int]:
        """Return the patients' risk sets on the grid and the smallest number of patients per cell."""
        memory, patients = self.memory, self.patients
        self._number = check_number(request.of_pass)
        included = self._calibrating(request.left_out) if request.on_risks else ~self._held
        limits.check_positive(request.spread, "spread")
        rows = (
            ((memory.risks - request.centre) / request.spread)[:, None] if request.on_risks else patients.standardised
        )
        limits.check_coefficients(request.coefficients, rows.shape[1])
        bins, happened, n_times = patients.bins[included], patients.happened[included], len(memory.times)
        cells = [np.bincount(bins, minlength=n_times + 1), np.bincount(bins[happened], minlength=1), _sizes(included)]
        sets = RiskSets(rows[included], np.minimum(bins + 1, n_times), happened, n_times)
        return sets, self.behind(np.concatenate(cells))

    def _behind_weights(self, weights: Floats) -> int:
        return self.behind(np.array([np.floor(effective_number(weights) + 1e-6)]))


def _sizes(included: Flags) -> Integers:
    """Return the numbers of selected and of other patients."""
    return np.array([int(included.sum()), int((~included).sum())])
