"""Before the first tree: the sites' columns and classes, the margin that all start from, and common cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages as sent
from multicentre.boosting.messages import LARGEST_WEIGHT, MOST_ROUNDS
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import MOST_DEPTH
from multicentre.data.schema import check_columns
from multicentre.federation.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.federation.messages import Nothing
from multicentre.federation.session import Session
from multicentre.federation.steps import Acknowledgement
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.statistics.quantiles.rounds import cuts_for_bins

Singles = NDArray[np.float32]

DIGITS = 30

LOSS_DIGITS = 30

LARGEST_DIGITS = 51


def describe(session: Session) -> sent.Described:
    """Return the columns and classes of all sites.

    Raises
    ------
    SchemaMismatch
        A site's columns differ, or its classes.
    """

    def ask() -> sent.Described:
        answers = session.ask(BoostingSite.describe, Nothing())
        classes = max((answer.classes for answer in answers.values()), key=len)
        first, expected = next(iter(answers.items()))
        for site, answer in answers.items():
            check_columns(site, answer, first, expected)
            if answer.classes != classes[: len(answer.classes)] or bool(answer.classes) != bool(classes):
                raise SchemaMismatch("the classes differ from the others'", where=site, hint="Name them alike.")
        return sent.Described(expected.columns, classes, levels=expected.levels)

    return session.once("columns", sent.Described, ask)


def share_of_second(session: Session) -> float:
    """Return the share of the records that are of the second of two classes.

    Raises
    ------
    DataError
        All are of one class.
    """
    counts = session.once(
        "classes", sent.ClassCounts, lambda: session.sum(BoostingSite.count_classes, sent.OfClasses(2))
    ).counts
    if not counts.all():
        raise DataError("all records are of one class", where="y", hint="Add sites that have both.")
    return float(counts[1] / counts.sum())


def outcome_exponents(session: Session) -> tuple[int, int]:
    """Return exponents of two for the units of outcomes, and of their squares; see :func:`units_of`."""
    found = session.once("magnitudes", sent.Magnitudes, lambda: session.sum(BoostingSite.count_magnitudes, Nothing()))
    return units_of(found.counts)


def units_of(counts: NDArray[np.int64]) -> tuple[int, int]:
    """Return exponents of two for the units of outcomes, and of their squares.

    Nine tenths of the outcomes have at least DIGITS binary digits, unless the largest are so large that the sum of all
    could then have more than LARGEST_DIGITS.

    Parameters
    ----------
    counts : array of shape (N_EXPONENTS,)
        Outcomes by exponent, from LOWEST_EXPONENT on.

    Examples
    --------
    >>> ones = np.zeros(sent.N_EXPONENTS, dtype=np.int64)
    >>> ones[1 - sent.LOWEST_EXPONENT] = 100
    >>> units_of(ones)
    (-29, -28)
    """
    if not counts.any():
        return -DIGITS, -LOSS_DIGITS
    usual, largest = int(np.searchsorted(np.cumsum(counts), 0.9 * counts.sum())), int(np.flatnonzero(counts)[-1])
    usual, largest = usual + sent.LOWEST_EXPONENT, largest + sent.LOWEST_EXPONENT
    room = LARGEST_DIGITS - int(counts.sum()).bit_length()
    return max(usual - DIGITS, largest - room), max(2 * usual - LOSS_DIGITS, 2 * largest - room)


def mean_outcome(session: Session, unit: int) -> float:
    """Return the mean outcome, added up in units of two to the power of `unit`."""
    total = session.once(
        "outcomes", sent.Outcomes, lambda: session.sum(BoostingSite.sum_outcomes, sent.InUnits(unit))
    ).total
    return float(total[0]) * 2.0**unit / max(float(total[1]), 1.0)


def find_cuts(
    session: Session, n_columns: int, max_bins: int, known: Sequence[Sequence[float]] | None
) -> tuple[Singles, NDArray[np.int32]]:
    """Return the cuts of every column one after the other, and their numbers: those known, or found by secure sums."""
    if known is None:
        found = cuts_for_bins(session, BoostingSite, n_columns=n_columns, n_bins=max_bins)
        # On borders of public cells, so that predictions separate any records as sites do, which compare by cell.
        columns = [coarsen(column.astype(np.float64), BoostingSite.finest).astype(np.float32) for column in found]
    else:
        columns = [np.unique(np.asarray(column, dtype=np.float32)) for column in known]
    if len(columns) != n_columns:
        raise ConfigurationError(
            f"cuts must have one list per column ({n_columns}); got {len(columns)}",
            where="cuts",
            hint="Give a list for each column.",
        )
    sizes = np.array([len(column) for column in columns], dtype=np.int32)
    return np.concatenate([np.zeros(0, dtype=np.float32), *columns]).astype(np.float32), sizes


def begin(session: Session, start: sent.Start) -> None:
    """Send the agreed start to every site."""

    def ask() -> Acknowledgement:
        session.ask(BoostingSite.begin, start)
        return Acknowledgement()

    session.once("begun", Acknowledgement, ask)


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is in its range.

    Examples
    --------
    >>> check_parameters({"max_depth": 3})
    """
    for name, value in given.items():
        if not _CHECKS[name](value):
            what = f"{value!r} is out of range"
            raise ConfigurationError(what, where=name, hint="See the parameter's documentation.")


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    kinds = (int, np.integer)
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool) and least <= int(value) <= most


def _real(least: float, most: float, *, above: bool = False) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            return False
        return least <= float(value) <= most and not (above and float(value) == least)

    return check


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _lists(value: Any) -> bool:
    kinds = (list, tuple)
    return isinstance(value, kinds) and all(
        isinstance(column, kinds) and all(_real(-3e38, 3e38)(each) for each in column) for column in value
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "missing": lambda value: True,  # checked with the words of every estimator when the fit begins
    "n_estimators": _whole(1, MOST_ROUNDS),
    "max_depth": _whole(1, MOST_DEPTH),
    "learning_rate": _real(0, 1, above=True),
    "reg_lambda": _real(0, 1e12),
    "reg_alpha": _real(0, 1e12),
    "gamma": _real(0, 1e12),
    "min_child_weight": _real(0, 1e12),
    "max_bins": _whole(2, 1024),
    "min_samples_leaf": _whole(0, 2**40),
    "base_score": _or_none(_real(-1e30, 1e30)),
    "n_iter_no_change": _or_none(_whole(1, MOST_ROUNDS)),
    "scale_pos_weight": _real(0, LARGEST_WEIGHT, above=True),
    "cuts": _or_none(_lists),
    "objective": lambda value: value in ("reg:squarederror", "count:poisson"),
}
