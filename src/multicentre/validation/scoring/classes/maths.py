"""Scores of classes from counts, with the names and definitions of scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# The width of a coarse bin is then 2 * WIDEST / N_BINS = 1/32 of a unit of log odds.
N_BINS = 1024
# Log odds are clipped to this range: probabilities below 1.1e-7 or above 1 - 1.1e-7 share the outermost bins.
WIDEST = 16.0
# Share of the bins that is spread evenly over the whole range, so that ranges without records have bins too.
SPREAD_OVER_ALL = 0.1
# Probabilities are clipped to the machine epsilon, as in sklearn.metrics.log_loss.
MIN_CHANCE = float(np.finfo(np.float64).eps)


def log_odds(chances: Floats) -> Floats:
    """Return log odds, clipped to -16 and 16. Records are ranked by them.

    Examples
    --------
    >>> log_odds(np.array([0.0, 0.5, 1.0])).tolist()
    [-16.0, 0.0, 16.0]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(chances) - np.log1p(-chances), -WIDEST, WIDEST), dtype=np.float64)


def coarse_edges() -> Floats:
    """Return 1023 equidistant log odds between the bins of the first count, the same for every model."""
    return np.linspace(-WIDEST, WIDEST, N_BINS + 1)[1:-1]


def even_edges(counts: Floats) -> Floats:
    """Return 1023 log odds between bins of about equal counts, shape (r, 1023), from counts by coarse bin.

    Records are assumed to be spread evenly within a coarse bin. A tenth of the bins is spread over the whole range.

    Examples
    --------
    >>> edges = even_edges(np.eye(1, 1024, 512) * 50.0)
    >>> int(((edges > 0) & (edges < 1 / 32)).sum())
    921
    """
    borders = np.linspace(-WIDEST, WIDEST, N_BINS + 1)
    rows = []
    for row in counts:
        shares = row / row.sum() if row.sum() > 0 else np.full(N_BINS, 1 / N_BINS)
        mixed = (1 - SPREAD_OVER_ALL) * shares + SPREAD_OVER_ALL / N_BINS
        below = np.append(0.0, np.cumsum(mixed))
        rows.append(np.interp(np.arange(1, N_BINS) / N_BINS, below / below[-1], borders))
    return np.array(rows)


def wide_edges(counts: Floats, wanted: Floats, fewest: float) -> Floats:
    """Return log odds between bins with at least `fewest` records each, among the borders of the coarse bins.

    Borders next to the wanted log odds are retained as far as possible. Between them, further borders divide the
    records into at most 1024 bins of about equal counts.

    Parameters
    ----------
    counts : array of shape (1024,)
        Records by coarse bin.
    wanted : array of shape (t,)
        Log odds at which a border is wanted, such as thresholds.
    fewest : float

    Examples
    --------
    >>> counts = np.zeros(1024)
    >>> counts[500:540] = 5.0
    >>> edges = wide_edges(counts, np.array([0.01, 3.0]), 20.0)
    >>> len(edges), bool(0.0 in edges)
    (9, True)
    """
    borders, below = coarse_edges(), np.cumsum(counts)[:-1]
    retained = np.unique(np.abs(borders[:, None] - np.atleast_1d(wanted)).argmin(axis=0))
    while len(retained):
        sizes = np.diff(np.concatenate([[0.0], below[retained], [counts.sum()]]))
        smallest = int(sizes.argmin())
        if sizes[smallest] >= fewest:
            break
        # The smallest bin joins the smaller one of its neighbours.
        joins_below = smallest > 0 and (smallest == len(retained) or sizes[smallest - 1] <= sizes[smallest + 1])
        retained = np.delete(retained, smallest - 1 if joins_below else smallest)
    chosen: list[int] = []
    size = max(fewest, float(counts.sum()) / N_BINS)
    ends = np.concatenate([below[retained], [counts.sum()]])
    last, end = 0.0, 0
    for place, reached in enumerate(below):
        if place in retained:
            chosen, last, end = [*chosen, place], reached, end + 1
        elif reached - last >= size and ends[end] - reached >= size:
            chosen, last = [*chosen, place], reached
    return borders[np.asarray(chosen, dtype=np.int64)]


def area_under_curve(counts: Floats) -> tuple[float, float]:
    """Return the area under the curve, with ties within a bin counted half, and its largest error.

    The largest error is half of ``sum n0 n1 / (N0 N1)`` over bins.

    Parameters
    ----------
    counts : array of shape (2, b)
        Number of records without (row 0) and with (row 1) the class, by bin.

    Raises
    ------
    DataError
        No record or every record has the class.

    Examples
    --------
    >>> area_under_curve(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    (0.875, 0.125)
    """
    negatives, positives = counts
    pairs = float(negatives.sum() * positives.sum())
    if not pairs:
        raise DataError(
            "scored records must have at least two classes; got one",
            where="scoring",
            hint="Use fewer folds, or balance them by the outcome.",
        )
    tied = float(negatives @ positives) / 2
    above = float(positives @ (np.cumsum(negatives) - negatives))
    return (above + tied) / pairs, tied / pairs


def places_among(scores: Floats, others: Floats) -> Floats:
    """Return the share of others below each score, with ties counted half, shape (n,); their mean is the area.

    Examples
    --------
    >>> places_among(np.array([1.0, 2.0]), np.array([0.0, 2.0])).tolist()
    [0.5, 0.75]
    """
    ordered = np.sort(others)
    sides = [np.searchsorted(ordered, scores, side=side) for side in ("left", "right")]
    return np.asarray((sides[0] + sides[1]) / (2 * max(len(others), 1)), dtype=np.float64)


def average_precision(counts: Floats) -> float:
    """Return the mean precision with bins as thresholds, weighted by the gain in recall.

    Parameters
    ----------
    counts : array of shape (2, b)
        Number of records without (row 0) and with (row 1) the class, by bin.

    Examples
    --------
    >>> average_precision(np.array([[1.0, 0.0], [0.0, 1.0]]))
    1.0
    """
    false_positives, true_positives = np.cumsum(counts[:, ::-1], axis=1)
    n_positive = max(float(true_positives[-1]), 1.0)
    gains = np.diff(true_positives, prepend=0.0) / n_positive
    return float(gains @ (true_positives / np.maximum(true_positives + false_positives, 1.0)))


def from_confusion(name: str, table: Floats) -> float:
    """Return a score from the confusion matrix.

    Parameters
    ----------
    name : str
        Key of ``FROM_CONFUSION``.
    table : array of shape (k, k)
        Records by true class (row) and predicted class (column).

    Raises
    ------
    ConfigurationError
        The score is defined for two classes only, and there are more.

    Examples
    --------
    >>> table = np.array([[3.0, 1.0], [0.0, 4.0]])
    >>> from_confusion("balanced_accuracy", table), round(from_confusion("f1", table), 4)
    (0.875, 0.8889)
    """
    if name in ("f1", "precision", "recall") and len(table) != 2:
        raise ConfigurationError(
            f"{name} must be used for two classes; got {len(table)}", where="scoring", hint=f"Use {name}_macro."
        )
    return FROM_CONFUSION[name](np.asarray(table, dtype=np.float64))


def _balanced(table: Floats) -> float:
    occurring = table.sum(axis=1) > 0
    return float(np.mean(np.diagonal(table)[occurring] / table.sum(axis=1)[occurring]))


def _ratios(table: Floats, over: Floats) -> Floats:
    """Return correct predictions per class divided by `over` (0 if that is 0), for true or predicted classes."""
    occurring = table.sum(axis=0) + table.sum(axis=1) > 0
    correct = np.diagonal(table)
    return np.asarray(np.divide(correct, over, out=np.zeros(len(table)), where=over > 0)[occurring])


def _f1(table: Floats) -> Floats:
    return _ratios(table, (table.sum(axis=0) + table.sum(axis=1)) / 2)


def _precision(table: Floats) -> Floats:
    return _ratios(table, table.sum(axis=0))


def _recall(table: Floats) -> Floats:
    return _ratios(table, table.sum(axis=1))


def _of_second(ratios: Floats, table: Floats) -> float:
    """Return the ratio of the second of two classes; 0 if it is neither true nor predicted for any record."""
    return float(ratios[-1]) if table[1].sum() + table[:, 1].sum() > 0 else 0.0


def _matthews(table: Floats) -> float:
    n, n_correct = table.sum(), np.trace(table)
    true, predicted = table.sum(axis=1), table.sum(axis=0)
    spread = float((n**2 - true @ true) * (n**2 - predicted @ predicted))
    return float((n_correct * n - true @ predicted) / np.sqrt(spread)) if spread > 0 else 0.0


FROM_CONFUSION = {
    "balanced_accuracy": _balanced,
    "f1": lambda table: _of_second(_f1(table), table),
    "f1_macro": lambda table: float(_f1(table).mean()),
    "precision": lambda table: _of_second(_precision(table), table),
    "precision_macro": lambda table: float(_precision(table).mean()),
    "recall": lambda table: _of_second(_recall(table), table),
    "recall_macro": lambda table: float(_recall(table).mean()),
    "matthews_corrcoef": _matthews,
}


def log_losses(chances: Floats, classes: Integers) -> Floats:
    """Return minus the log probability of the true class, shape (n,), as ``sklearn.metrics.log_loss``.

    Examples
    --------
    >>> log_losses(np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([0, 0])).round(3).tolist()
    [0.693, 36.044]
    """
    shares = np.clip(chances, MIN_CHANCE, 1 - MIN_CHANCE)
    total = shares.sum(axis=1)
    return np.asarray(np.log(total) - np.log(shares[np.arange(len(classes)), classes]), dtype=np.float64)


def brier_losses(chances: Floats, classes: Integers) -> Floats:
    """Return squared errors of the probabilities, shape (n,), summed over classes and halved for two classes.

    Examples
    --------
    >>> brier_losses(np.array([[0.25, 0.75]]), np.array([0])).tolist()
    [0.5625]
    """
    errors = np.square(chances - np.eye(chances.shape[1])[classes]).sum(axis=1)
    return np.asarray(errors / 2 if chances.shape[1] == 2 else errors, dtype=np.float64)
