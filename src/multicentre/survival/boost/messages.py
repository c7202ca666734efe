"""What boosting of survival models sends: asks of the coordinator, releases of the sites, and what they remember.

Hypotheses leave a site as models (:mod:`multicentre.survival.models`), arrays that were checked; everything else that
leaves is a term of a sum over sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Agreed
from multicentre.survival.boost.hypotheses import unit_of_loss
from multicentre.survival.kernels.risk_sets import Ties
from multicentre.survival.learners.tree import DEEPEST, TreeSettings

if TYPE_CHECKING:
    from multicentre.survival.learners.networks import NetworkSettings

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Bytes = NDArray[np.uint8]

LARGEST_LOSS = 16.0

LARGEST_SUM = 2.0**34


@dataclass(frozen=True)
class Memory(Agreed):
    """What a site remembers between rounds; it never leaves."""

    log_weights: Floats = array("log weight of every patient, minus infinity without part", ("n",), finite=False)
    n_folds: int = count("folds into which the patients were split; 0 before")
    folds: Integers = array("fold of every patient, from 1", ("n",), dtype="i8")
    held: int = count("fold that is held out; 0 for none")
    loss: str = text("loss by which hypotheses are judged")
    staying: Floats = array("chance of not being censored, on the grid", ("K",))
    packed: Bytes = array("learners to be judged, as bytes", ("b",), dtype="u1")
    lengths: Integers = array("bytes of each", ("m",), dtype="i8")
    shares: Floats = array("share of each learner in each hypothesis", ("u", "w"))
    curves: Floats = array("votes times curves of the patients held out", ("h", "K"))
    votes: float = number("sum of the votes")
    risks: Floats = array("risk by an ensemble that did not see the patient; 0 before", ("n",))
    stopped: bool = flag("the site's own boosting has ended")


@dataclass(frozen=True)
class Begin(Message):
    """A pass of boosting begins: everyone who is not held out weighs the same."""

    seed: int = count("seed of the folds")
    n_folds: int = count("folds into which patients are split; 0 for none")
    held: int = count("fold that is held out; 0 for none")
    loss: str = text("loss by which hypotheses are judged")
    staying: Floats = array("chance of not being censored, on the grid", ("K",))


@dataclass(frozen=True)
class Scale(Message):
    """By what the sites' weights are scaled."""

    log_total: float = number("logarithm of the sum of the weights over all sites")
    log_cap: float = number("logarithm of the largest weight; infinity for none", finite=False)


@dataclass(frozen=True)
class Fit(Scale):
    """A hypothesis is wanted."""

    seed: int = count("seed of the sites' random streams")
    round: int = count("number of the round")
    resample: bool = flag("patients are drawn by their weights; otherwise they are weighted")
    alone: bool = flag("the site then reweighs its patients by its own hypothesis")
    rate: float = number("learning rate of the site's own boosting")
    by_largest: bool = flag("in it, the site's largest loss counts as 1; otherwise the loss's unit")


@dataclass(frozen=True)
class FitCox(Fit):
    """A Cox model is wanted."""

    ridge: float = number("ridge penalty")
    ties: str = text("how ties are handled")
    min_events_leaf: int = count("fewest events")


@dataclass(frozen=True)
class FitTree(Fit):
    """A survival tree is wanted."""

    max_depth: int = count("splits on the way to a leaf; 0 for 64")
    min_samples_leaf: int = count("fewest patients of a leaf")
    min_events_leaf: int = count("fewest of them with an event")
    max_features: str = text("columns tried at a node: sqrt, third, all or a number")


@dataclass(frozen=True)
class FitNetwork(Fit):
    """A network is wanted."""

    hidden: Integers = array("widths of the hidden layers", ("l",), dtype="i8")
    norm: str = text("normalisation in training")
    training: Floats = array("dropout, learning rate, weight decay, batch, epochs, n_iter_no_change, validation", (7,))


@dataclass(frozen=True)
class Hypotheses(Scale):
    """Learners of all sites, and the hypotheses that are mixed from them; no learners where those sent before serve."""

    packed: Bytes = array("the learners as bytes", ("b",), dtype="u1")
    lengths: Integers = array("bytes of each", ("m",), dtype="i8")
    shares: Floats = array("share of each learner in each hypothesis", ("q", "l"))


@dataclass(frozen=True)
class Errors(Release):
    """What a site adds to the errors of the hypotheses."""

    losses: Floats = array("weighted losses of every hypothesis", ("q",), bound=LARGEST_LOSS)
    total: float = number("sum of the weights", bound=2.0)


@dataclass(frozen=True)
class Search(Message):
    """Where the largest loss of every hypothesis is looked for."""

    low: Floats = array("lower end of the bins, by hypothesis", ("q",))
    width: float = number("width of a bin")


@dataclass(frozen=True)
class Marks(Release):
    """Where a site's largest losses lie."""

    marks: Floats = array("1 in the bin of the site's largest loss, by hypothesis", ("q", 64), bound=1)


@dataclass(frozen=True)
class Chosen(Scale):
    """The hypothesis of the round."""

    index: int = count("its place among the hypotheses")
    vote: float = number("its vote in the ensemble")
    factor: float = number("its vote in the weights; 0 leaves them as they are")
    scale: float = number("loss that counts as 1")


@dataclass(frozen=True)
class Weighed(Release):
    """What a site adds to the total weight, and to the ensemble's error."""

    total: float = number("sum of the new weights", bound=2.0)
    n_held: float = number("patients held out", unit="patients", bound=PATIENTS)
    brier: float = number("integrated Brier scores of the patients held out", bound=PATIENTS * LARGEST_LOSS)


@dataclass(frozen=True)
class Ensemble(Message):
    """Where the coordinator stands."""

    packed: Bytes = array("the hypotheses so far, as bytes", ("b",), dtype="u1")
    lengths: Integers = array("bytes of each", ("m",), dtype="i8")
    sizes: Integers = array("learners in each", ("m",), dtype="i8")
    votes: Floats = array("vote of each", ("m",))
    errors: Floats = array("error of each", ("m",))
    names: tuple[str, ...] = texts("where each comes from")
    dropped: tuple[str, ...] = texts("learners that were not valid, as site and round")
    log_total: float = number("logarithm of the total weight")
    brier: float = number("least mean Brier score of the patients held out", finite=False)
    last: float = number("the mean Brier score of the last round", finite=False)
    best: int = count("hypotheses by which the least was reached")
    stopped: str = text("why the rounds ended early")


@dataclass(frozen=True)
class Pool(Message):
    """Learners that sites fitted on their own."""

    packed: Bytes = array("the learners as bytes", ("b",), dtype="u1")
    lengths: Integers = array("bytes of each", ("m",), dtype="i8")
    names: tuple[str, ...] = texts("where each comes from")
    dropped: tuple[str, ...] = texts("learners that were not valid, as site and round")


@dataclass(frozen=True)
class Censorings(Release):
    """Patients who left, by time of the grid."""

    censored: Floats = array(
        "patients whose follow-up ended, by bin, the last beyond the horizon", ("b",), unit="patients", bound=PATIENTS
    )
    events: Floats = array("patients with an event, by bin", ("K",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Coefficients(Message):
    """A proportional-hazards model on columns, or on the ensembles' risks."""

    coefficients: Floats = array("log hazard ratios of the standardised covariates", ("d",))
    on_risks: bool = flag("the covariate is the risk by an ensemble that did not see the patient")
    left_out: int = count("fold that is left out; 0 for none")
    centre: float = number("risk that becomes 0")
    spread: float = number("by which risks are divided")


@dataclass(frozen=True)
class Hazards(Release):
    """What a site adds to Breslow's partial likelihood."""

    events: Floats = array("patients with an event, by time", ("K",), unit="patients", bound=PATIENTS)
    event_sum: Floats = array("covariates of patients with an event, summed", ("d",), bound=2.0**34)
    risk: Floats = array("hazard ratios of those at risk, summed", ("K",), bound=LARGEST_SUM)
    risk_sum: Floats = array("hazard ratios times covariates of those at risk, summed", ("K", "d"), bound=LARGEST_SUM)


@dataclass(frozen=True)
class Curvature(Coefficients):
    """Coefficients, and the hazard that they give the baseline."""

    hazard: Floats = array("hazard of the baseline, by time", ("K",))


@dataclass(frozen=True)
class Moments(Release):
    """What a site adds to the second derivatives."""

    moments: Floats = array("products of covariates, weighted by their hazards", ("d", "d"), bound=LARGEST_SUM)


@dataclass(frozen=True)
class RiskMoments(Release):
    """What a site adds to mean and deviation of the risks."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    total: float = number("sum of the risks over the horizon", bound=PATIENTS)
    squares: float = number("sum of their squares", bound=PATIENTS)


@dataclass(frozen=True)
class Calibration(Message):
    """A recalibration, to be judged on the fold held out."""

    slope: float = number("log hazard ratio of a standardised risk")
    centre: float = number("risk that becomes 0")
    spread: float = number("by which risks are divided")
    baseline: Floats = array("cumulative hazard where the standardised risk is 0", ("K",))


@dataclass(frozen=True)
class BrierSum(Release):
    """What a site adds to the Brier score of recalibrated curves."""

    n_held: float = number("patients held out", unit="patients", bound=PATIENTS)
    brier: float = number("integrated Brier scores of the patients held out", bound=PATIENTS * LARGEST_LOSS)


LEAST_IN_LEAF = 15

MOST_FOLDS = 10

LARGEST_VOTE = 50.0

LARGEST_PREDICTOR = 20.0

LARGEST_COEFFICIENT = 100.0

LARGEST_NUMBER = 2**31 - 1

MOST_EPOCHS = 10_000


def fewest_in_leaf(asked: int, least_behind: int) -> int:
    """Return how many patients a leaf or a model rests on at least: 15 or the policy's, where it wants any.

    Examples
    --------
    >>> fewest_in_leaf(3, 10), fewest_in_leaf(20, 10), fewest_in_leaf(3, 0)
    (15, 20, 3)
    """
    return max(1, asked, *((LEAST_IN_LEAF, least_behind) if least_behind else ()))


def check_begin(ask: Begin, memory: Memory) -> None:
    """Raise ConfigurationError unless a pass can begin so: folds stay as they were first drawn."""
    unit_of_loss(ask.loss, memory.times)
    folds_fit = ask.n_folds == 0 or 2 <= ask.n_folds <= MOST_FOLDS
    if not folds_fit or not 0 <= ask.held <= ask.n_folds:
        raise _refusal(f"fold {ask.held} of {ask.n_folds} cannot be held out", "n_folds", f"Use 2 to {MOST_FOLDS}.")
    if memory.n_folds and ask.n_folds and memory.n_folds != ask.n_folds:
        raise _refusal("patients were split otherwise in this fit", "n_folds", "Begin a new fit.")
    if ask.staying.shape != memory.times.shape or (ask.staying < 0).any() or (ask.staying > 1).any():
        raise _refusal("the chances of staying do not fit the grid", "staying", "Begin a new fit.")


def check_folds(memory: Memory, left_out: int) -> None:
    """Raise ConfigurationError unless patients were split into folds, of which this is one (or 0)."""
    if not memory.n_folds or not 0 <= left_out <= memory.n_folds:
        raise _refusal(f"there is no fold {left_out}", "left_out", "Begin a new fit.")


def check_chosen(ask: Chosen, n_hypotheses: int) -> None:
    """Raise ConfigurationError unless the hypothesis is one of those received, with a vote within limits."""
    if not 0 <= ask.index < n_hypotheses:
        raise _refusal(f"there is no hypothesis {ask.index}", "index", "Begin a new fit.")
    if not (0 < ask.vote <= LARGEST_VOTE and 0 <= ask.factor <= LARGEST_VOTE):
        raise _refusal("a vote is out of its range", "vote", "Begin a new fit.")
    check_positive(ask.scale, "scale")


def check_positive(value: float, name: str) -> None:
    """Raise ConfigurationError unless a value is above 0."""
    if not value > 0:
        raise _refusal("a value above 0 is needed", name, "Begin a new fit.")


def checked_rate(rate: float) -> float:
    """Return a learning rate above 0, at most 1, or raise ConfigurationError."""
    if not 0 < rate <= 1:
        raise _refusal(f"{rate} is no learning rate", "learning_rate", "Use a number above 0, at most 1.")
    return rate


def check_coefficients(coefficients: Floats, n_covariates: int) -> None:
    """Raise ConfigurationError unless coefficients fit the covariates and are at most 100 in magnitude."""
    if coefficients.shape != (n_covariates,) or np.abs(coefficients).max(initial=0.0) > LARGEST_COEFFICIENT:
        raise _refusal(f"{n_covariates} coefficients up to {LARGEST_COEFFICIENT:g} are needed", "coefficients", "")


def check_hazard(hazard: Floats, n_times: int) -> None:
    """Raise ConfigurationError unless there is a hazard from 0 for every time."""
    if hazard.shape != (n_times,) or (hazard < 0).any():
        raise _refusal("the hazard does not fit the grid", "hazard", "Begin a new fit.")


def check_calibration(ask: Calibration, n_times: int) -> None:
    """Raise ConfigurationError unless a recalibration fits the grid."""
    check_positive(ask.spread, "spread")
    if ask.baseline.shape != (n_times,) or (ask.baseline < 0).any() or (np.diff(ask.baseline) < 0).any():
        raise _refusal("the baseline does not fit the grid", "baseline", "Begin a new fit.")


def check_search(ask: Search, n_hypotheses: int) -> None:
    """Raise ConfigurationError unless there is a lower end for every hypothesis, and bins have a width."""
    if ask.low.shape != (n_hypotheses,):
        raise _refusal("the bins do not fit the hypotheses", "low", "Begin a new fit.")
    check_positive(ask.width, "width")


def known_ties(ties: str) -> Ties:
    """Return how ties are handled, or raise ConfigurationError."""
    if ties not in ("breslow", "efron"):
        raise _refusal(f"{ties!r} handles no ties", "ties", "Use 'breslow' or 'efron'.")
    return cast("Ties", ties)


def tree_settings(ask: FitTree, least_behind: int) -> TreeSettings:
    """Return a tree's settings from a message, no leaf below the policy's, or raise ConfigurationError."""
    for name, most in {
        "max_depth": DEEPEST,
        "min_samples_leaf": LARGEST_NUMBER,
        "min_events_leaf": LARGEST_NUMBER,
    }.items():
        if getattr(ask, name) > most:
            raise _refusal(f"{getattr(ask, name)} is too many", name, f"Give at most {most}.")
    least = fewest_in_leaf(ask.min_samples_leaf, least_behind)
    return TreeSettings(ask.max_depth or None, least, ask.min_events_leaf, known_columns(ask.max_features))


def known_columns(max_features: str) -> Literal["sqrt", "third", "all"] | int:
    """Return how many columns a node tries: a number, or a name that tree settings know.

    Examples
    --------
    >>> known_columns("7"), known_columns("sqrt")
    (7, 'sqrt')
    """
    is_number = max_features.isdecimal() and len(max_features) < len(str(LARGEST_NUMBER))
    return int(max_features) if is_number else cast("Literal['sqrt', 'third', 'all']", max_features)


def network_settings(ask: FitNetwork) -> NetworkSettings:
    """Return a network's settings from a message, or raise ConfigurationError."""
    from multicentre.survival.learners.networks import NetworkSettings

    dropout, rate, decay, batch, epochs, n_iter_no_change, validation = ask.training.tolist()
    if epochs > MOST_EPOCHS:
        raise _refusal(f"{epochs:g} passes are too many", "max_epochs", f"Give at most {MOST_EPOCHS}.")
    hidden = tuple(int(width) for width in ask.hidden)
    whole = (int(batch), int(epochs), int(n_iter_no_change))
    norm = cast("Literal['none', 'layer', 'batch']", ask.norm)
    return NetworkSettings(hidden, norm, dropout, rate, decay, *whole, validation)


def ratios(rows: Floats, coefficients: Floats) -> Floats:
    """Return hazard ratios, from exp(-20) to exp(20), shape (n,).

    Examples
    --------
    >>> ratios(np.array([[0.0], [1e9]]), np.ones(1)).round().tolist()
    [1.0, 485165195.0]
    """
    return np.asarray(np.exp(np.clip(rows @ coefficients, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)), dtype=np.float64)


def _refusal(what: str, where: str, hint: str) -> ConfigurationError:
    return ConfigurationError(what, where=where, hint=hint)
