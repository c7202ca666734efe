"""Agreement before the first tree: columns and classes of the sites, first margin and common cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.site import BoostingSite
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement
from multicentre.data.schema import check_columns
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.statistics.quantiles.rounds import cuts_for_bins

Singles = NDArray[np.float32]

# Binary digits of slopes and curvatures: more than the 24 of single precision, in which xgboost computes them.
DIGITS = 30
# Binary digits of losses, as of slopes and curvatures.
LOSS_DIGITS = 30
# Binary digits of the largest sum: below the 52 up to which a site truncates single terms.
LARGEST_DIGITS = 51


def describe(session: Session) -> messages.Described:
    """Return the columns and classes of all sites.

    Raises
    ------
    SchemaMismatch
        The columns or classes differ between sites.
    """

    def request() -> messages.Described:
        answers = session.ask(BoostingSite.describe, Nothing())
        classes = max((answer.classes for answer in answers.values()), key=len)
        first, expected = next(iter(answers.items()))
        for site, answer in answers.items():
            check_columns(site, answer, first, expected)
            if answer.classes != classes[: len(answer.classes)] or bool(answer.classes) != bool(classes):
                raise SchemaMismatch(
                    f"classes must be the same at all sites, {', '.join(classes) or 'none'}; "
                    f"got {', '.join(answer.classes) or 'none'}",
                    where=site,
                    hint="Use the same names in the same order at all sites.",
                )
        return messages.Described(expected.columns, classes, levels=expected.levels)

    return session.once("columns", messages.Described, request)


def share_of_second(session: Session) -> float:
    """Return the share of records of the second of two classes.

    Raises
    ------
    DataError
        All records are of one class.
    """
    counts = session.once(
        "classes", messages.ClassCounts, lambda: session.sum(BoostingSite.count_classes, messages.OfClasses(2))
    ).counts
    if not counts.all():
        raise DataError(
            "records must be of two classes; got one class", where="y", hint="Add sites that have both classes."
        )
    return float(counts[1] / counts.sum())


def outcome_exponents(session: Session) -> tuple[int, int]:
    """Return exponents of two for the units of outcomes, and of their squares; see :func:`units_of`."""
    magnitudes = session.once(
        "magnitudes", messages.Magnitudes, lambda: session.sum(BoostingSite.count_magnitudes, Nothing())
    )
    return units_of(magnitudes.counts)


def units_of(counts: NDArray[np.int64]) -> tuple[int, int]:
    """Return exponents of two for the units of outcomes, and of their squares.

    Nine tenths of the outcomes have at least DIGITS binary digits. They have fewer if the sum of all outcomes could
    otherwise have more than LARGEST_DIGITS.

    Parameters
    ----------
    counts : array of shape (N_EXPONENTS,)
        Number of outcomes by exponent, from LOWEST_EXPONENT on.

    Examples
    --------
    >>> ones = np.zeros(messages.N_EXPONENTS, dtype=np.int64)
    >>> ones[1 - messages.LOWEST_EXPONENT] = 100
    >>> units_of(ones)
    (-29, -28)
    """
    if not counts.any():
        return -DIGITS, -LOSS_DIGITS
    usual, largest = int(np.searchsorted(np.cumsum(counts), 0.9 * counts.sum())), int(np.flatnonzero(counts)[-1])
    usual, largest = usual + messages.LOWEST_EXPONENT, largest + messages.LOWEST_EXPONENT
    room = LARGEST_DIGITS - int(counts.sum()).bit_length()
    return max(usual - DIGITS, largest - room), max(2 * usual - LOSS_DIGITS, 2 * largest - room)


def mean_outcome(session: Session, unit: int) -> float:
    """Return the mean outcome; the sum is in units of two to the power of `unit`."""
    total = session.once(
        "outcomes", messages.Outcomes, lambda: session.sum(BoostingSite.sum_outcomes, messages.InUnits(unit))
    ).total
    return float(total[0]) * 2.0**unit / max(float(total[1]), 1.0)


def find_cuts(
    session: Session, n_columns: int, max_bins: int, public_cuts: Sequence[Sequence[float]] | None
) -> tuple[Singles, NDArray[np.int32]]:
    """Return the cuts of all columns in sequence, and their number by column: public ones, or from secure sums."""
    if public_cuts is None:
        quantiles = cuts_for_bins(session, BoostingSite, n_columns=n_columns, n_bins=max_bins)
        # Cuts lie on borders of public cells. Sites compare cells, so predictions then separate the same records.
        columns = [coarsen(column.astype(np.float64), BoostingSite.finest).astype(np.float32) for column in quantiles]
    else:
        columns = [np.unique(np.asarray(column, dtype=np.float32)) for column in public_cuts]
    if len(columns) != n_columns:
        raise ConfigurationError(
            f"cuts must have one list per column ({n_columns}); got {len(columns)}",
            where="cuts",
            hint="Pass one list per column.",
        )
    sizes = np.array([len(column) for column in columns], dtype=np.int32)
    return np.concatenate([np.zeros(0, dtype=np.float32), *columns]).astype(np.float32), sizes


def begin(session: Session, start: messages.Start) -> None:
    """Send the agreed start to every site."""

    def request() -> Acknowledgement:
        session.ask(BoostingSite.begin, start)
        return Acknowledgement()

    session.once("begun", Acknowledgement, request)
