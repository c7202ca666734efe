"""From errors summed over sites to the hypothesis of a round and its vote.

AdaBoost.R2 (Drucker 1997) and SAMME (Zhu and others 2009) differ in where they stop and in one term of the vote. Both
multiply a patient's weight by exp(-vote (1 - loss)), up to a factor that all patients share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.ties import first_least

Floats = NDArray[np.float64]
SMALLEST_ERROR = 1e-10
FIRST_VOTE = 1e-3
NO_HYPOTHESIS = "no site could fit a hypothesis"
NO_ERROR = "a hypothesis makes no error"
TOO_MUCH_ERROR = "the best hypothesis is no better than a guess"


@dataclass(frozen=True)
class Rule:
    """How an error becomes a vote, and when boosting ends.

    Parameters
    ----------
    rate : float
        Learning rate, above 0, at most 1.
    largest : float
        An error from here on is no better than a guess.
    bonus : float
        What is added to the log odds: the logarithm of the number of classes less one, or 0.
    perfect : float, optional
        Vote of a hypothesis without error; by default that of an error of 1e-10.
    equal : bool
        Every hypothesis has one vote, and nothing ends the rounds.
    """

    rate: float = 1.0
    largest: float = 0.5
    bonus: float = 0.0
    perfect: float | None = None
    equal: bool = False

    @classmethod
    def of_classes(cls, n_classes: int, rate: float) -> Rule:
        """Return SAMME's rule.

        Examples
        --------
        >>> Rule.of_classes(4, 1.0).largest
        0.75
        """
        return cls(rate, 1.0 - 1.0 / n_classes, float(np.log(n_classes - 1.0)), 1.0)


@dataclass(frozen=True)
class Verdict:
    """What a round decided.

    Parameters
    ----------
    index : int
        Place of the best hypothesis; -1 where there is none.
    error : float
        Its mean loss under the weights, not a number where there is none.
    vote : float
        Its vote; 0 where it is not kept.
    stop : str
        Why boosting ends here; empty where it goes on.
    """

    index: int
    error: float
    vote: float
    stop: str

    @property
    def kept(self) -> bool:
        """Whether the hypothesis joins the ensemble."""
        return self.vote > 0


def decide(losses: Floats, scales: Floats, total: float, rule: Rule, *, is_first: bool) -> Verdict:
    """Return a round's hypothesis: the one of the smallest summed loss, the first of those tied.

    Parameters
    ----------
    losses : array of shape (q,)
        Weighted losses of every hypothesis, summed over sites, in the loss's own unit. A hypothesis whose sum is not
        finite is passed over.
    scales : array of shape (q,)
        Largest loss that counts as 1, by hypothesis.
    total : float
        Sum of the weights over sites.
    rule : Rule
    is_first : bool
        Nothing was kept so far: a hypothesis no better than a guess is kept with a vote of 0.001.

    Examples
    --------
    >>> decide(np.array([0.3, 0.2, np.nan]), np.ones(3), 1.0, Rule(), is_first=True)
    Verdict(index=1, error=0.2, vote=1.3862943611198906, stop='')
    >>> decide(np.array([0.6]), np.ones(1), 1.0, Rule(), is_first=False).stop
    'the best hypothesis is no better than a guess'
    """
    usable = np.isfinite(losses)
    if not usable.any() or not total > 0:
        return Verdict(-1, float("nan"), 0.0, NO_HYPOTHESIS)
    index = int(first_least(losses, size=total * np.abs(scales)))
    scale = float(scales[index])
    error = float(losses[index]) / (scale * total) if scale > 0 else 0.0
    if rule.equal:
        return Verdict(index, error, 1.0, "")
    if error >= rule.largest:
        return Verdict(index, error, FIRST_VOTE if is_first else 0.0, TOO_MUCH_ERROR)
    if error <= 0.0:
        return Verdict(index, error, vote_of(0.0, rule) if rule.perfect is None else rule.perfect, NO_ERROR)
    return Verdict(index, error, vote_of(error, rule), "")


def vote_of(error: float, rule: Rule) -> float:
    """Return the vote of an error: the learning rate times its log odds of being right, plus the bonus.

    Examples
    --------
    >>> round(vote_of(0.2, Rule(rate=0.1)), 4)
    0.1386
    """
    error = max(error, SMALLEST_ERROR)
    return rule.rate * (float(np.log((1.0 - error) / error)) + rule.bonus)
