"""FedDeepSurv: federated averaging of a network for the log hazard ratio.

Before the first round, each site draws its held-out patients.

One round consists of:

1. The coordinator sends the current network to every site.
2. Each site evaluates the network on its held-out patients, trains it on the others, and returns the partial likelihood
   and the trained parameters, weighted by its share of the patients.
3. The coordinator averages the parameters, and stores the network with the best validation score.

After the last round, each site returns events and sums of hazard ratios by time of the grid under the best network,
from which the coordinator computes the baseline hazard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import DataError, IntegrityError
from multicentre.estimator.parameters import SEED, Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.saved import Arrays
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalMissing
from multicentre.survival.estimator import MISSING, SurvivalEstimator
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.learners.networks import (
    MIN_EVENTS,
    NETWORK_RANGES,
    NetworkSettings,
    draw_parameters,
    require_torch,
)
from multicentre_papers.baselines.deep_surv.site import (
    MAX_EPOCHS,
    DeepSite,
    Parts,
    Progress,
    Proposal,
    RiskSums,
    Task,
    Trained,
    baseline_hazard,
)

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class FedDeepSurv(SurvivalEstimator):
    """DeepSurv by federated averaging: proportional hazards with a network instead of the linear predictor.

    In every round each site trains the network for some passes over its patients, on the partial likelihood of the
    site's risk sets, and the coordinator averages the parameters, weighted by patients. Each site holds out a part of
    its patients. The rounds stop when their partial likelihood, summed over the sites, does not increase, and the best
    network is selected. The baseline hazard follows from sums over all patients. Only sums over sites reach the
    coordinator.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default (32, 32)
        Widths of the hidden layers (rectified), at most four; without hidden layers the model is linear.
    norm : {"layer", "none"}, default "layer"
        Layer normalisation in every hidden layer, or none. Batch normalisation is not available, because its statistics
        differ by site and average poorly.
    dropout : float, default 0.1
        Share of a hidden layer's values dropped in training.
    max_iter : int, default 100
        Maximum number of rounds.
    n_local_epochs : int, default 1
        Passes over a site's patients per round, at most 100.
    learning_rate : float, default 0.01
        Step length of AdamW; its moments are reset in every round.
    weight_decay : float, default 0.0001
        Penalty of the squared weights in each step.
    batch_size : int, default 256
        Largest number of patients per batch.
    proximal_penalty : float, default 0.0
        Penalty on the distance between a site's network w and the network w_0 that it received: mu in FedProx's
        ``mu / 2 * ||w - w_0||^2``. With 0 the method is FedAvg.
    validation_fraction : float, default 0.15
        Share of a site's patients held out for validation, from 0 to 0.5. If fewer than three of them have an event
        over all sites, all rounds are made and the last network is selected.
    n_iter_no_change : int, default 15
        Number of rounds without a better network after which the fit stops.
    n_times : int, default 64
        Number of times of the grid, at most 256.
    horizon : float, optional
        Last time of the grid; by default the time by which 95 % of the follow-ups ended.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored.
    missing : {"mean", "indicator", "complete"}, default "mean"
        Handling of missing entries: fill with the mean over sites; fill and add an indicator column; or leave
        incomplete patients out. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed of the initial parameters; the sites combine it with their data for their draws.

    Attributes
    ----------
    model_ : Network
        Parameters and baseline, as checked arrays; predictions do not require torch.
    history_ : list of dict
        One entry per round: ``log_likelihood``, the log partial likelihood per event of held-out patients, under the
        network at the start of the round.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range.
    DataError
        No training patient has an event up to the horizon.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.
    MissingExtra
        torch is not installed (``pip install 'multicentre[deep]'``).

    References
    ----------
    .. [1] J. Katzman et al., "DeepSurv", BMC Medical Research Methodology 18 (2018), 24.
    .. [2] B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    .. [3] T. Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.

    Examples
    --------
    >>> from multicentre_papers.baselines import FedDeepSurv
    >>> FedDeepSurv(hidden_layer_sizes=(16,), proximal_penalty=0.1)
    FedDeepSurv(hidden_layer_sizes=(16,), proximal_penalty=0.1)
    """

    site_part: ClassVar[type[SitePart]] = DeepSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        **{
            name: NETWORK_RANGES[name]
            for name in ("hidden_layer_sizes", "dropout", "learning_rate", "weight_decay", "validation_fraction")
        },
        "norm": OneOf("layer", "none"),
        "max_iter": Integer(1),
        "n_local_epochs": Integer(1, MAX_EPOCHS),
        "batch_size": Integer(2),
        "proximal_penalty": Real(0, 1e6),
        "n_iter_no_change": Integer(1),
        "n_times": Integer(1, MAX_TIMES),
        "horizon": (None, Real(0, open="low")),
        "cause": Integer(1, 127),
        "missing": MISSING,
        "random_state": SEED,
    }
    model_: Network

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (32, 32),
        *,
        norm: Literal["layer", "none"] = "layer",
        dropout: float = 0.1,
        max_iter: int = 100,
        n_local_epochs: int = 1,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-4,
        batch_size: int = 256,
        proximal_penalty: float = 0.0,
        validation_fraction: float = 0.15,
        n_iter_no_change: int = 15,
        n_times: int = 64,
        horizon: float | None = None,
        cause: int = 1,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.norm = norm
        self.dropout = dropout
        self.max_iter = max_iter
        self.n_local_epochs = n_local_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.proximal_penalty = proximal_penalty
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_times = n_times
        self.horizon = horizon
        self.cause = cause
        self.missing = missing
        self.random_state = random_state

    def to_frame(self) -> pd.DataFrame:
        """Return a row per round with held-out events: the log partial likelihood per event."""
        import pandas as pd

        check_is_fitted(self, "model_")
        rounds = [int(entry["round"]) for entry in self.history_]
        return pd.DataFrame({"round": rounds, "log_likelihood": [entry["log_likelihood"] for entry in self.history_]})

    def _results(self) -> dict[str, Any]:
        scores = self.to_frame()["log_likelihood"].tolist()
        return {"held-out log likelihood per event": max(scores)} if scores else {}

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        return steps_of_agreement(self._needs) | {"split", "train", "sum_risks"}

    @property
    def _needs(self) -> Needs:
        return Needs(n_times=self.n_times, horizon=self.horizon, cause=self.cause)

    def _fit(self, session: Session) -> None:
        settings = self._settings()
        require_torch()
        self.agreed_ = self._agree(session, self._needs)
        parts = Parts(float(self.validation_fraction), int(self.random_state))
        session.once("split", Parts, lambda: _send_parts(session, parts))
        task = self._first_task(settings)
        rounds = session.rounds(self.max_iter, Progress, lambda: _start(task))
        for number in rounds:
            request = replace(task, parameters=rounds.state.parameters, round_number=number)
            sums = session.sum(DeepSite.train, request)
            self._advance(rounds, sums)
        final = rounds.state
        selected = final.best if math.isfinite(final.score) else final.parameters
        proposal = Proposal(task.hidden, task.norm, selected)
        sums_at_risk = session.once("risks", RiskSums, lambda: session.sum(DeepSite.sum_risks, proposal))
        self.model_ = self._model(proposal, sums_at_risk)
        self.history_ = rounds.history

    def _first_task(self, settings: NetworkSettings) -> Task:
        start = draw_parameters(len(self.agreed_.columns), settings, np.random.default_rng(self.random_state))
        return Task(
            hidden=np.array(settings.hidden_layer_sizes, dtype=np.int64),
            norm=settings.norm,
            parameters=start,
            dropout=settings.dropout,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            batch_size=settings.batch_size,
            n_epochs=self.n_local_epochs,
            proximal=float(self.proximal_penalty),
            seed=int(self.random_state),
            round_number=0,
        )

    def _advance(self, rounds: Rounds[Progress], sums: Trained) -> None:
        if sums.share <= 0:
            raise DataError(
                "at least one training patient must have an event up to the horizon; got none",
                where="event",
                hint="Lower `validation_fraction`, or use a later horizon.",
            )
        before = rounds.state
        rounds.state = replace(before, parameters=sums.parameters / sums.share)
        if sums.n_events < MIN_EVENTS - 0.5:
            return
        score = sums.log_likelihood * self.agreed_.n_events / sums.n_events
        rounds.record(log_likelihood=score)
        if score > before.score:
            rounds.state = replace(rounds.state, best=before.parameters, score=score, best_round=rounds.number)
        elif rounds.number - before.best_round >= self.n_iter_no_change:
            rounds.stop()

    def _model(self, proposal: Proposal, sums: RiskSums) -> Network:
        agreed = self.agreed_
        return Network(
            agreed.times,
            agreed.centre,
            agreed.spread,
            proposal.hidden.astype(np.int32),
            int(proposal.norm == "layer"),
            proposal.parameters,
            baseline_hazard(sums.events, sums.at_risk * agreed.n_patients),
            patients=round(agreed.n_patients),
        ).valid(len(agreed.columns))

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        if not isinstance(self.model_, Network):
            raise IntegrityError(f"the model must be a Network; got {type(self.model_).__name__}", where="model")

    def _settings(self) -> NetworkSettings:
        return NetworkSettings(
            tuple(int(width) for width in self.hidden_layer_sizes),
            self.norm,
            float(self.dropout),
            float(self.learning_rate),
            float(self.weight_decay),
            int(self.batch_size),
            validation_fraction=float(self.validation_fraction),
        )


def _start(task: Task) -> Progress:
    return Progress(task.parameters, task.parameters, -math.inf, 0)


def _send_parts(session: Session, parts: Parts) -> Parts:
    session.ask(DeepSite.split, parts)
    return parts
