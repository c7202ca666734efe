"""Agreement of a partition with known classes, and with other partitions.

Labels can be numbers or text; the scores depend only on the members of a class or cluster. The best value is 1. No
method uses the scores against classes in `fit`.

References
----------
L. Hubert, P. Arabie (1985), Comparing partitions, Journal of Classification 2, 193-218. A. Strehl, J. Ghosh (2002),
Cluster ensembles, Journal of Machine Learning Research 3, 583-617. N. X. Vinh, J. Epps, J. Bailey (2010), Information
theoretic measures for clusterings comparison, Journal of Machine Learning Research 11, 2837-2854.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = Sequence[Hashable] | NDArray[np.generic]
Average = Literal["max", "arithmetic"]


def contingency(truth: Labels, clusters: Labels) -> Integers:
    """Return the number of samples of each class in each cluster, of shape (classes, clusters).

    Parameters
    ----------
    truth, clusters : sequence of length n
        Class and cluster of each sample, without missing values.

    Raises
    ------
    DataError
        No sample, labellings of different lengths, or missing labels.

    Examples
    --------
    >>> contingency(["a", "a", "b"], [1, 2, 2]).tolist()
    [[1, 1], [0, 1]]
    """
    rows, columns = _encode_pair(truth, clusters)
    shape = rows.max() + 1, columns.max() + 1
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


def accuracy(truth: Labels, clusters: Labels) -> float:
    """Return the share of samples in their class under the best one-to-one match of clusters with classes.

    The match is the assignment of largest total. With more clusters than classes, some clusters are not matched.

    Examples
    --------
    >>> accuracy(["a", "a", "b", "b"], [1, 1, 0, 2])
    0.75
    """
    return _accuracy(contingency(truth, clusters))


def purity(truth: Labels, clusters: Labels) -> float:
    """Return the share of samples that belong to the most frequent class of their cluster.

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], [1, 1, 0, 2])
    1.0
    """
    return _purity(contingency(truth, clusters))


def normalised_mutual_information(truth: Labels, clusters: Labels, average: Average = "max") -> float:
    """Return the mutual information over the larger of the two entropies, or over their mean.

    Parameters
    ----------
    truth, clusters : sequence of length n
    average : {"max", "arithmetic"}, default "max"
        "max" as in tables of multi-view clustering; "arithmetic" as in scikit-learn by default.

    Returns
    -------
    float
        From 0 to 1; 1 where both labellings have a single group.

    Examples
    --------
    >>> round(normalised_mutual_information([0, 0, 1, 1], [0, 0, 1, 2]), 4)
    0.6667
    >>> round(normalised_mutual_information([0, 0, 1, 1], [0, 0, 1, 2], "arithmetic"), 4)
    0.8
    """
    if average not in ("max", "arithmetic"):
        raise ConfigurationError(
            f"average must be one of 'max', 'arithmetic'; got {average!r}", where="average", hint="Correct average."
        )
    return _information(*_encode_pair(truth, clusters), average)


def adjusted_rand(truth: Labels, clusters: Labels) -> float:
    """Return the Rand index corrected for chance: 1 for the same partition, 0 on average for one drawn at random.

    Examples
    --------
    >>> adjusted_rand([0, 0, 1, 1], ["y", "y", "x", "x"]), round(adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]), 4)
    (1.0, -0.5)
    """
    return _adjusted_rand(*_encode_pair(truth, clusters))


def clustering_scores(truth: Labels, clusters: Labels) -> dict[str, float]:
    """Return every score of a partition against known classes.

    Returns
    -------
    dict
        "acc", "purity", "nmi" (over the larger entropy), "nmi_arithmetic", "ari".

    Examples
    --------
    >>> import multicentre as mc
    >>> scores = mc.clustering.clustering_scores([0, 0, 1, 1], [0, 0, 1, 2])
    >>> {name: round(value, 3) for name, value in scores.items()}
    {'acc': 0.75, 'purity': 1.0, 'nmi': 0.667, 'nmi_arithmetic': 0.8, 'ari': 0.571}
    """
    pair = _encode_pair(truth, clusters)
    table = contingency(*pair)
    return {
        "acc": _accuracy(table),
        "purity": _purity(table),
        "nmi": _information(*pair, "max"),
        "nmi_arithmetic": _information(*pair, "arithmetic"),
        "ari": _adjusted_rand(*pair),
    }


def stability(labellings: Iterable[Labels]) -> float:
    """Return the mean adjusted Rand index over all pairs of labellings of the same samples.

    Raises
    ------
    DataError
        Fewer than two labellings, or labellings of different lengths.

    Examples
    --------
    >>> round(stability([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 2]]), 3)
    0.714
    """
    encoded = [_encode(labels, "labellings") for labels in labellings]
    if len(encoded) < 2:
        raise DataError(f"labellings must be at least 2; got {len(encoded)}", where="labellings")
    return float(np.mean([adjusted_rand(one, other) for one, other in combinations(encoded, 2)]))


def _accuracy(table: Integers) -> float:
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def _purity(table: Integers) -> float:
    return float(table.max(axis=0).sum() / table.sum())


def _information(truth: Integers, clusters: Integers, average: Average) -> float:
    from sklearn.metrics import normalized_mutual_info_score

    # Rounding can bring the quotient above 1.
    return min(float(normalized_mutual_info_score(truth, clusters, average_method=average)), 1.0)


def _adjusted_rand(truth: Integers, clusters: Integers) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, clusters))


def _encode_pair(truth: Labels, clusters: Labels) -> tuple[Integers, Integers]:
    """Return both labellings as numbers from 0, after a check that their lengths agree."""
    pair = _encode(truth, "truth"), _encode(clusters, "clusters")
    if len(pair[0]) != len(pair[1]):
        raise DataError(
            f"truth and clusters must have the same length; got {len(pair[0])} and {len(pair[1])} labels",
            where="truth, clusters",
            hint="Pass both labellings for the same samples in the same order.",
        )
    return pair


def _encode(labels: Labels, where: str) -> Integers:
    """Return the labels as numbers from 0, in the order of their first sample."""
    values = np.asarray(labels).tolist() if isinstance(labels, np.ndarray) else list(labels)
    if not values:
        raise DataError("labels must be at least one; got none", where=where)
    number: dict[Hashable, int] = {}
    try:
        missing = any(label is None or bool(label != label) for label in values)
        encoded = [number.setdefault(label, len(number)) for label in values]
    except (TypeError, ValueError) as error:
        raise DataError("each label must be a number or a string; got another type", where=where) from error
    if missing:
        raise DataError(
            "every sample must have a label; got samples without a label",
            where=where,
            hint="Leave samples without a label out of both labellings.",
        )
    return np.array(encoded, dtype=np.int64)
