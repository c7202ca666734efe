"""What a site takes from a coordinator, and what it leaves standing however it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.survival.boost import messages as sent
from multicentre.survival.boost.hypotheses import unit_of_loss
from multicentre.survival.kernels.risk_sets import Ties
from multicentre.survival.learners.tree import DEEPEST, TreeSettings

if TYPE_CHECKING:
    from multicentre.survival.learners.networks import NetworkSettings

Floats = NDArray[np.float64]
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


def check_begin(ask: sent.Begin, memory: sent.Memory) -> None:
    """Raise ConfigurationError unless a pass can begin so: folds stay as they were first drawn."""
    unit_of_loss(ask.loss, memory.times)
    folds_fit = ask.n_folds == 0 or 2 <= ask.n_folds <= MOST_FOLDS
    if not folds_fit or not 0 <= ask.held <= ask.n_folds:
        raise _refusal(f"fold {ask.held} of {ask.n_folds} cannot be held out", "n_folds", f"Use 2 to {MOST_FOLDS}.")
    if memory.n_folds and ask.n_folds and memory.n_folds != ask.n_folds:
        raise _refusal("patients were split otherwise in this fit", "n_folds", "Begin a new fit.")
    if ask.staying.shape != memory.times.shape or (ask.staying < 0).any() or (ask.staying > 1).any():
        raise _refusal("the chances of staying do not fit the grid", "staying", "Begin a new fit.")


def check_folds(memory: sent.Memory, left_out: int) -> None:
    """Raise ConfigurationError unless patients were split into folds, of which this is one (or 0)."""
    if not memory.n_folds or not 0 <= left_out <= memory.n_folds:
        raise _refusal(f"there is no fold {left_out}", "left_out", "Begin a new fit.")


def check_chosen(ask: sent.Chosen, n_hypotheses: int) -> None:
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


def check_calibration(ask: sent.Calibration, n_times: int) -> None:
    """Raise ConfigurationError unless a recalibration fits the grid."""
    check_positive(ask.spread, "spread")
    if ask.baseline.shape != (n_times,) or (ask.baseline < 0).any() or (np.diff(ask.baseline) < 0).any():
        raise _refusal("the baseline does not fit the grid", "baseline", "Begin a new fit.")


def check_search(ask: sent.Search, n_hypotheses: int) -> None:
    """Raise ConfigurationError unless there is a lower end for every hypothesis, and bins have a width."""
    if ask.low.shape != (n_hypotheses,):
        raise _refusal("the bins do not fit the hypotheses", "low", "Begin a new fit.")
    check_positive(ask.width, "width")


def known_ties(ties: str) -> Ties:
    """Return how ties are handled, or raise ConfigurationError."""
    if ties not in ("breslow", "efron"):
        raise _refusal(f"{ties!r} handles no ties", "ties", "Use 'breslow' or 'efron'.")
    return cast("Ties", ties)


def tree_settings(ask: sent.FitTree, least_behind: int) -> TreeSettings:
    """Return a tree's settings from a message, no leaf below the policy's, or raise ConfigurationError."""
    for name, most in {"max_depth": DEEPEST, "min_leaf": LARGEST_NUMBER, "min_events": LARGEST_NUMBER}.items():
        if getattr(ask, name) > most:
            raise _refusal(f"{getattr(ask, name)} is too many", name, f"Give at most {most}.")
    least = fewest_in_leaf(ask.min_leaf, least_behind)
    return TreeSettings(ask.max_depth or None, least, ask.min_events, known_columns(ask.n_columns))


def known_columns(n_columns: str) -> Literal["sqrt", "third", "all"] | int:
    """Return how many columns a node tries: a number, or a name that tree settings know.

    Examples
    --------
    >>> known_columns("7"), known_columns("sqrt")
    (7, 'sqrt')
    """
    is_number = n_columns.isdecimal() and len(n_columns) < len(str(LARGEST_NUMBER))
    return int(n_columns) if is_number else cast("Literal['sqrt', 'third', 'all']", n_columns)


def network_settings(ask: sent.FitNetwork) -> NetworkSettings:
    """Return a network's settings from a message, or raise ConfigurationError."""
    from multicentre.survival.learners.networks import NetworkSettings

    dropout, rate, decay, batch, epochs, patience, validation = ask.training.tolist()
    if epochs > MOST_EPOCHS:
        raise _refusal(f"{epochs:g} passes are too many", "max_epochs", f"Give at most {MOST_EPOCHS}.")
    hidden = tuple(int(width) for width in ask.hidden)
    whole = (int(batch), int(epochs), int(patience))
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


def _refusal(what: str, where: str, mend: str) -> ConfigurationError:
    return ConfigurationError(what, where=where, mend=mend)
