"""Messages of FedSurvBoost: requests of the coordinator, releases of the sites, and the sites' state between rounds.

Hypotheses leave a site as models (:mod:`multicentre.survival.fitted_models`), which are checked arrays. Every other
value that leaves a site is a term of a sum over sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import M, Message, array, arrays, count, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError
from multicentre.survival.agreement.messages import PATIENTS, Prepared
from multicentre.survival.kernels.risk_sets import Ties
from multicentre.survival.learners.tree import DEEPEST, MaxFeatures, TreeSettings
from multicentre.survival.surv_boost.hypotheses import unit_of_loss

if TYPE_CHECKING:
    from multicentre.survival.learners.networks import NetworkSettings

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Bytes = NDArray[np.uint8]

Flags = NDArray[np.bool_]

PASS = "number of the pass; 0 for that of the model"

# Bound of a loss in its unit.
MAX_LOSS = 16.0

# 2^24 patients (PATIENTS), with a mean hazard ratio, or weighted product of covariates, of up to 2^10.
MAX_SUM = 2.0**34


@dataclass(frozen=True)
class Memory(Prepared):
    """State of a site between rounds; it never leaves the site."""

    n_splits: int = count("number of folds; 0 before the split")
    folds: Integers = array("fold of every patient, from 1", ("n",), dtype="i8")
    loss: str = text("loss of the hypotheses")
    staying: Floats = array("probability of not being censored, on the grid", ("K",))
    risks: Floats = array("out-of-fold risk of every patient; 0 before", ("n",))
    held: Mapping[str, int] = count("fold held out, by pass; 0 for none", keyed=True)
    log_weights: Mapping[str, Floats] = arrays(
        "log weight of every patient, by pass; minus infinity if not included", ("n",), finite=False
    )
    packed: Mapping[str, Bytes] = arrays("learners to be evaluated, serialised, by pass", ("b",), dtype="u1")
    lengths: Mapping[str, Integers] = arrays("number of bytes of each learner, by pass", ("m",), dtype="i8")
    shares: Mapping[str, Floats] = arrays("share of each learner in each hypothesis, by pass", ("u", "w"))
    curves: Mapping[str, Floats] = arrays("sum of votes times curves, of held-out patients, by pass", ("h", "K"))
    votes: Mapping[str, Floats] = arrays("sum of the votes, by pass", (1,))
    stopped: Mapping[str, Flags] = arrays("the separate boosting of this site has ended, by pass", (1,), dtype="b1")


@dataclass(frozen=True)
class Begin(Message):
    """Start of a pass of boosting: all patients who are not held out receive the same weight."""

    seed: int = count("seed of the folds")
    n_splits: int = count("number of folds; 0 for none")
    held: int = count("fold held out; 0 for none")
    loss: str = text("loss of the hypotheses")
    staying: Floats = array("probability of not being censored, on the grid", ("K",))
    of_pass: int = count(PASS, default=0)


@dataclass(frozen=True)
class Scale(Message):
    """Scale of the sites' weights."""

    of_pass: int = count(PASS, default=0)
    log_total: float = number("logarithm of the sum of the weights over all sites")
    log_cap: float = number("logarithm of the maximum weight; infinity for none", finite=False)


@dataclass(frozen=True)
class Fit(Scale):
    """Request for a hypothesis."""

    seed: int = count("seed of the sites' random streams")
    round: int = count("number of the round")
    resample: bool = flag("draw patients by their weights; otherwise fit with weights")
    alone: bool = flag("the site reweights its patients by the fitted hypothesis (separate boosting)")
    rate: float = number("learning rate of the separate boosting")
    by_largest: bool = flag("in separate boosting, the largest loss at the site counts as 1; otherwise the loss unit")


@dataclass(frozen=True)
class FitCox(Fit):
    """Request for a Cox model."""

    ridge: float = number("ridge penalty")
    ties: str = text("handling of ties")
    min_events_leaf: int = count("minimum number of events")


@dataclass(frozen=True)
class FitTree(Fit):
    """Request for a survival tree."""

    max_depth: int = count("maximum depth; 0 for 64")
    min_samples_leaf: int = count("minimum number of patients per leaf")
    min_events_leaf: int = count("minimum number of events per leaf")
    max_features: str = text("columns tried per node: sqrt, log2, all, a number, or a share of them such as 0.5")


@dataclass(frozen=True)
class FitNetwork(Fit):
    """Request for a neural network."""

    hidden: Integers = array("widths of the hidden layers", ("l",), dtype="i8")
    norm: str = text("normalisation in training")
    training: Floats = array("dropout, learning rate, weight decay, batch, epochs, n_iter_no_change, validation", (7,))


@dataclass(frozen=True)
class Hypotheses(Scale):
    """Learners of all sites, and the hypotheses as mixtures of them; no learners if the previous ones are reused."""

    packed: Bytes = array("serialised learners", ("b",), dtype="u1")
    lengths: Integers = array("number of bytes of each learner", ("m",), dtype="i8")
    shares: Floats = array("share of each learner in each hypothesis", ("q", "l"))


@dataclass(frozen=True)
class Errors(Release):
    """Contribution of a site to the errors of the hypotheses."""

    losses: Floats = array("weighted losses of every hypothesis", ("q",), bound=MAX_LOSS)
    total: float = number("sum of the weights", bound=2.0)


@dataclass(frozen=True)
class Search(Message):
    """Bins in which the largest loss of every hypothesis is searched."""

    low: Floats = array("lower end of the bins, by hypothesis", ("q",))
    width: float = number("width of a bin")
    of_pass: int = count(PASS, default=0)


@dataclass(frozen=True)
class LossBins(Release):
    """Bins of the largest losses at a site."""

    marks: Floats = array("1 in the bin of the site's largest loss, by hypothesis", ("q", 64), bound=1)


@dataclass(frozen=True)
class Chosen(Scale):
    """Selected hypothesis of the round."""

    index: int = count("index of the hypothesis")
    vote: float = number("vote of the hypothesis in the ensemble")
    factor: float = number("vote used to update the weights; 0 leaves them unchanged")
    scale: float = number("loss that counts as 1")


@dataclass(frozen=True)
class Weighed(Release):
    """Contribution of a site to the total weight and to the error of the ensemble."""

    total: float = number("sum of the new weights", bound=2.0)
    n_held: float = number("held-out patients", unit="patients", bound=PATIENTS)
    brier: float = number("sum of integrated Brier scores of held-out patients", bound=PATIENTS * MAX_LOSS)


@dataclass(frozen=True)
class Ensemble(Message):
    """State of the coordinator between rounds."""

    packed: Bytes = array("selected hypotheses, serialised", ("b",), dtype="u1")
    lengths: Integers = array("number of bytes of each hypothesis", ("m",), dtype="i8")
    sizes: Integers = array("number of learners of each hypothesis", ("m",), dtype="i8")
    votes: Floats = array("vote of each hypothesis", ("m",))
    errors: Floats = array("error of each hypothesis", ("m",))
    names: tuple[str, ...] = texts("origin of each hypothesis")
    dropped: tuple[str, ...] = texts("invalid learners, as site and round")
    log_total: float = number("logarithm of the total weight")
    brier: float = number("smallest mean Brier score of held-out patients", finite=False)
    last: float = number("mean Brier score of the last round", finite=False)
    best: int = count("number of hypotheses at the smallest Brier score")
    stopped: str = text("reason for an early end of the rounds")


@dataclass(frozen=True)
class Pool(Message):
    """Learners fitted by separate boosting at the sites."""

    packed: Bytes = array("serialised learners", ("b",), dtype="u1")
    lengths: Integers = array("number of bytes of each learner", ("m",), dtype="i8")
    names: tuple[str, ...] = texts("origin of each learner")
    dropped: tuple[str, ...] = texts("invalid learners, as site and round")


@dataclass(frozen=True)
class ByPass(Message):
    """Messages of several passes, each in the wire format."""

    packed: Mapping[str, Bytes] = arrays("message of each pass, serialised", ("b",), dtype="u1")

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        """Return the messages of the passes, in order, as one."""
        return cls({str(place): np.frombuffer(encode(one), dtype=np.uint8) for place, one in enumerate(messages)})

    def read(self, kind: type[M]) -> list[M]:
        """Return the messages of the passes, in order."""
        return [decode(kind, self.packed[str(place)].tobytes()) for place in range(len(self.packed))]


@dataclass(frozen=True)
class Censorings(Release):
    """Numbers of censored patients and of events, by time of the grid."""

    censored: Floats = array(
        "censored patients by bin, the last bin beyond the horizon", ("b",), unit="patients", bound=PATIENTS
    )
    events: Floats = array("patients with an event, by bin", ("K",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Coefficients(Message):
    """Proportional hazards model on columns, or on the ensembles' risks."""

    coefficients: Floats = array("log hazard ratios of the standardised covariates", ("d",))
    on_risks: bool = flag("the covariate is the out-of-fold risk of the patient")
    left_out: int = count("fold to leave out; 0 for none")
    centre: float = number("mean subtracted from risks")
    spread: float = number("divisor of risks")
    of_pass: int = count(PASS, default=0)


@dataclass(frozen=True)
class Hazards(Release):
    """Contribution of a site to Breslow's partial likelihood."""

    events: Floats = array("patients with an event, by time", ("K",), unit="patients", bound=PATIENTS)
    event_sum: Floats = array("sum of covariates over patients with an event", ("d",), bound=2.0**34)
    risk: Floats = array("sum of hazard ratios over the risk set", ("K",), bound=MAX_SUM)
    risk_sum: Floats = array("sum of hazard ratios times covariates over the risk set", ("K", "d"), bound=MAX_SUM)


@dataclass(frozen=True)
class Curvature(Coefficients):
    """Coefficients, and the baseline hazard under them."""

    hazard: Floats = array("baseline hazard, by time", ("K",))


@dataclass(frozen=True)
class Moments(Release):
    """Contribution of a site to the second derivatives."""

    moments: Floats = array("products of covariates, weighted by their hazards", ("d", "d"), bound=MAX_SUM)


@dataclass(frozen=True)
class RiskMoments(Release):
    """Contribution of a site to mean and standard deviation of the risks."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    total: float = number("sum of the risks, divided by the horizon", bound=PATIENTS)
    squares: float = number("sum of squared risks", bound=PATIENTS)


@dataclass(frozen=True)
class Calibration(Message):
    """Recalibration to be evaluated on the fold held out."""

    slope: float = number("log hazard ratio of a standardised risk")
    centre: float = number("mean subtracted from risks")
    spread: float = number("divisor of risks")
    baseline: Floats = array("cumulative hazard at a standardised risk of 0", ("K",))


@dataclass(frozen=True)
class BrierSum(Release):
    """Contribution of a site to the Brier score of recalibrated curves."""

    n_held: float = number("held-out patients", unit="patients", bound=PATIENTS)
    brier: float = number("sum of integrated Brier scores of held-out patients", bound=PATIENTS * MAX_LOSS)


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields of a message, by name."""
    return {name: getattr(message, name) for name in message.declarations()}


# Minimum number of patients per leaf or model that leaves a site under a policy with a minimum.
MIN_IN_LEAF = 15

# Limits of what a site accepts in a request.
MAX_FOLDS = 10

# About twice the log odds of SMALLEST_ERROR, log(1e10) = 23, at the largest learning rate, 1.
MAX_VOTE = 50.0

# exp(20) is the largest hazard ratio, so that sums of hazard ratios stay finite.
MAX_PREDICTOR = 20.0

# A hazard ratio of exp(100) per standard deviation: only a diverged fit has larger coefficients.
MAX_COEFFICIENT = 100.0

# Largest signed 32-bit integer; above PATIENTS, so no larger minimum per leaf has a meaning.
MAX_NUMBER = 2**31 - 1

# A hundred times the default of NetworkSettings; bounds the time that one request takes at a site.
MAX_EPOCHS = 10_000


def fewest_in_leaf(min_samples: int, least_behind: int) -> int:
    """Return the minimum number of patients per leaf or model: 15 or the policy's minimum, if the policy has one.

    Examples
    --------
    >>> fewest_in_leaf(3, 10), fewest_in_leaf(20, 10), fewest_in_leaf(3, 0)
    (15, 20, 3)
    """
    return max(1, min_samples, *((MIN_IN_LEAF, least_behind) if least_behind else ()))


def check_begin(request: Begin, memory: Memory) -> None:
    """Raise ConfigurationError unless a pass can begin with this request; the split into folds cannot change."""
    unit_of_loss(request.loss, memory.times)
    folds_fit = request.n_splits == 0 or 2 <= request.n_splits <= MAX_FOLDS
    if not folds_fit or not 0 <= request.held <= request.n_splits:
        raise refusal(
            f"n_splits must be 0 or from 2 to {MAX_FOLDS}, and held at most n_splits; "
            f"got {request.n_splits} and {request.held}",
            "n_splits",
            f"Use 2 to {MAX_FOLDS}.",
        )
    if memory.n_splits and request.n_splits and memory.n_splits != request.n_splits:
        raise refusal(
            f"n_splits must stay {memory.n_splits} during a fit; got {request.n_splits}", "n_splits", "Start a new fit."
        )
    if request.staying.shape != memory.times.shape or (request.staying < 0).any() or (request.staying > 1).any():
        raise refusal(
            f"staying must hold a probability per time, {len(memory.times)} in total; got others",
            "staying",
            "Start a new fit.",
        )


def check_folds(memory: Memory, left_out: int) -> None:
    """Raise ConfigurationError unless the fold exists (0 for none)."""
    if not memory.n_splits or not 0 <= left_out <= memory.n_splits:
        raise refusal(
            f"left_out must be a fold from 0 to {memory.n_splits}; got {left_out}", "left_out", "Start a new fit."
        )


def check_chosen(request: Chosen, n_hypotheses: int) -> None:
    """Raise ConfigurationError unless the hypothesis was received, with a vote within limits."""
    if not 0 <= request.index < n_hypotheses:
        raise refusal(f"index must be from 0 to {n_hypotheses - 1}; got {request.index}", "index", "Start a new fit.")
    if not (0 < request.vote <= MAX_VOTE and 0 <= request.factor <= MAX_VOTE):
        raise refusal(
            f"vote must be above 0 and factor non-negative, both at most {MAX_VOTE:g}; got {request.vote} and "
            f"{request.factor}",
            "vote",
            "Start a new fit.",
        )
    check_positive(request.scale, "scale")


def check_positive(value: float, name: str) -> None:
    """Raise ConfigurationError unless a value is positive."""
    if not value > 0:
        raise refusal(f"{name} must be positive; got {value}", name, "Start a new fit.")


def checked_rate(rate: float) -> float:
    """Return a learning rate above 0 and at most 1, or raise ConfigurationError."""
    if not 0 < rate <= 1:
        raise refusal(
            f"learning_rate must be above 0 and at most 1; got {rate}",
            "learning_rate",
            "Use a number above 0, at most 1.",
        )
    return rate


def check_coefficients(coefficients: Floats, n_covariates: int) -> None:
    """Raise ConfigurationError unless there is one coefficient per covariate, of magnitude up to 100."""
    if coefficients.shape != (n_covariates,) or np.abs(coefficients).max(initial=0.0) > MAX_COEFFICIENT:
        raise refusal(
            f"coefficients must be {n_covariates} numbers of magnitude up to {MAX_COEFFICIENT:g}; got others",
            "coefficients",
            "Standardise the columns, or start a new fit.",
        )


def check_hazard(hazard: Floats, n_times: int) -> None:
    """Raise ConfigurationError unless there is a non-negative hazard per time."""
    if hazard.shape != (n_times,) or (hazard < 0).any():
        raise refusal(f"hazard must be {n_times} non-negative numbers; got others", "hazard", "Start a new fit.")


def check_calibration(request: Calibration, n_times: int) -> None:
    """Raise ConfigurationError unless a recalibration matches the grid."""
    check_positive(request.spread, "spread")
    if request.baseline.shape != (n_times,) or (request.baseline < 0).any() or (np.diff(request.baseline) < 0).any():
        raise refusal(
            f"baseline must be {n_times} non-negative, non-decreasing numbers; got others",
            "baseline",
            "Start a new fit.",
        )


def check_search(request: Search, n_hypotheses: int) -> None:
    """Raise ConfigurationError unless there is a lower end per hypothesis, and the bins have a positive width."""
    if request.low.shape != (n_hypotheses,):
        raise refusal(
            f"low must have one entry per hypothesis, {n_hypotheses} in total; got shape {request.low.shape}",
            "low",
            "Start a new fit.",
        )
    check_positive(request.width, "width")


def known_ties(ties: str) -> Ties:
    """Return the handling of ties, or raise ConfigurationError."""
    if ties not in ("breslow", "efron"):
        raise refusal(f"ties must be 'breslow' or 'efron'; got {ties!r}", "ties", "Use 'breslow' or 'efron'.")
    return cast("Ties", ties)


def tree_settings(request: FitTree, least_behind: int) -> TreeSettings:
    """Return tree settings from a message, with leaves of the policy's size, or raise ConfigurationError."""
    for name, most in {
        "max_depth": DEEPEST,
        "min_samples_leaf": MAX_NUMBER,
        "min_events_leaf": MAX_NUMBER,
    }.items():
        if getattr(request, name) > most:
            raise refusal(f"{name} must be at most {most}; got {getattr(request, name)}", name, f"Give at most {most}.")
    least = fewest_in_leaf(request.min_samples_leaf, least_behind)
    return TreeSettings(request.max_depth or None, least, request.min_events_leaf, read_columns(request.max_features))


def write_columns(max_features: MaxFeatures) -> str:
    """Return the columns tried per node as text.

    Examples
    --------
    >>> write_columns(7), write_columns(0.5), write_columns(None)
    ('7', '0.5', 'all')
    """
    return "all" if max_features is None else str(max_features)


def read_columns(text: str) -> MaxFeatures:
    """Return the columns tried per node for their text; the tree settings check the value.

    Examples
    --------
    >>> read_columns("7"), read_columns("0.5"), read_columns("all"), read_columns("sqrt")
    (7, 0.5, None, 'sqrt')
    """
    if text == "all":
        return None
    if text.isdecimal() and len(text) < len(str(MAX_NUMBER)):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return cast("Literal['sqrt', 'log2']", text)


def network_settings(request: FitNetwork) -> NetworkSettings:
    """Return network settings from a message, or raise ConfigurationError."""
    from multicentre.survival.learners.networks import NetworkSettings

    dropout, rate, decay, batch, epochs, n_iter_no_change, validation = request.training.tolist()
    if epochs > MAX_EPOCHS:
        raise refusal(
            f"max_epochs must be at most {MAX_EPOCHS}; got {epochs:g}", "max_epochs", f"Give at most {MAX_EPOCHS}."
        )
    hidden = tuple(int(width) for width in request.hidden)
    whole = (int(batch), int(epochs), int(n_iter_no_change))
    norm = cast("Literal['none', 'layer', 'batch']", request.norm)
    return NetworkSettings(hidden, norm, dropout, rate, decay, *whole, validation)


def ratios(rows: Floats, coefficients: Floats) -> Floats:
    """Return hazard ratios, from exp(-20) to exp(20), shape (n,).

    Examples
    --------
    >>> ratios(np.array([[0.0], [1e9]]), np.ones(1)).round().tolist()
    [1.0, 485165195.0]
    """
    return np.asarray(np.exp(np.clip(rows @ coefficients, -MAX_PREDICTOR, MAX_PREDICTOR)), dtype=np.float64)


def refusal(what: str, where: str, hint: str) -> ConfigurationError:
    """Return the error of a request that the site does not accept."""
    return ConfigurationError(what, where=where, hint=hint)
