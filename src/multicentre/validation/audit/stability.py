"""How stable a key is: whether two records of one person have the same value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from multicentre.federation.errors import DataError

LEAST_STABLE = 0.95


@dataclass(frozen=True)
class KeyStability:
    """How often two records of one person agree in a key.

    Attributes
    ----------
    n_pairs : int
    missing : tuple of float
        Share of the first and of the second records without a value.
    equal : float
        Share of the pairs with equal values, of those that have both; NaN without any.
    same_fold : float
        Share of the pairs in one fold, of those that have both, if values that differ fall into folds at random.
    """

    n_pairs: int
    missing: tuple[float, float]
    equal: float
    same_fold: float

    @property
    def is_enough(self) -> bool:
        """Whether the key is as stable as folds need: 0.95 or more of the pairs are equal."""
        return self.equal >= LEAST_STABLE


def key_stability(
    first: Sequence[str | None],
    second: Sequence[str | None],
    *,
    n_splits: int = 5,
    fold_of: Callable[[str], int] | None = None,
) -> KeyStability:
    """Return how often pairs of records agree in a key, and how often they fall into one fold.

    Parameters
    ----------
    first, second : sequence of str or None, shape (n,)
        The key of each pair's two records, normalised, None where missing.
    n_splits : int, default 5
        Folds, K.
    fold_of : callable, optional
        Fold of a value; by default values that differ are in one fold with probability 1 / K.

    Raises
    ------
    DataError
        The columns differ in length, or there is no pair.

    Examples
    --------
    >>> found = key_stability(["1950-01-31", "1961-05-02", None], ["1950-01-31", "1961-02-05", "1970-01-01"])
    >>> found.equal, found.same_fold, found.missing[0].__round__(2)
    (0.5, 0.6, 0.33)
    """
    if len(first) != len(second) or not len(first):
        raise DataError("pairs of records are needed, at least one", where="first, second")
    pairs = [(one, other) for one, other in zip(first, second, strict=True) if one is not None and other is not None]
    missing = tuple(sum(one is None for one in column) / len(first) for column in (first, second))
    equal = _share([one == other for one, other in pairs])
    if fold_of is None:
        same_fold = equal + (1 - equal) / n_splits
    else:
        same_fold = _share([fold_of(one) == fold_of(other) for one, other in pairs])
    return KeyStability(len(first), (missing[0], missing[1]), equal, same_fold)


def _share(holds: list[bool]) -> float:
    return float(np.mean(holds)) if holds else float("nan")
