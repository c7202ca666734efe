"""How well a partition agrees with known classes, with other partitions, and with the embedding it was made from.

Labels are of any kind (numbers, text), and a class or cluster is known by its members alone. In all scores 1 is best.
No method uses them in `fit`.

References
----------
L. Hubert, P. Arabie (1985), Comparing partitions, Journal of Classification 2, 193-218. A. Strehl, J. Ghosh (2002),
Cluster ensembles, Journal of Machine Learning Research 3, 583-617. N. X. Vinh, J. Epps, J. Bailey (2010), Information
theoretic measures for clusterings comparison, Journal of Machine Learning Research 11, 2837-2854. P. J. Rousseeuw
(1987), Silhouettes, Journal of Computational and Applied Mathematics 20, 53-65.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import entr

from multicentre.federation.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = Sequence[Hashable] | NDArray[np.generic]
Average = Literal["max", "arithmetic"]
MOST_SILHOUETTES = 5000


def contingency(truth: Labels, found: Labels) -> Integers:
    """Return how many samples each class shares with each cluster, of shape (classes, clusters).

    Parameters
    ----------
    truth, found : sequence of length n
        Class and cluster of each sample; no missing ones.

    Raises
    ------
    DataError
        No sample, labellings of different lengths, or missing labels.

    Examples
    --------
    >>> contingency(["a", "a", "b"], [1, 2, 2]).tolist()
    [[1, 1], [0, 1]]
    """
    classes, clusters = _encode(truth, "truth"), _encode(found, "found")
    if len(classes) != len(clusters):
        raise DataError(
            f"{len(classes)} samples have a class and {len(clusters)} a cluster",
            where="truth, found",
            hint="Give both labellings for the same samples in the same order.",
        )
    shape = classes.max() + 1, clusters.max() + 1
    return np.bincount(classes * shape[1] + clusters, minlength=shape[0] * shape[1]).reshape(shape)


def accuracy(truth: Labels, found: Labels) -> float:
    """Return the share of samples in their class under the best one-to-one match of clusters with classes.

    The match is the assignment of largest total; with more clusters than classes some clusters match none.

    Examples
    --------
    >>> accuracy(["a", "a", "b", "b"], [1, 1, 0, 2])
    0.75
    """
    return _accuracy(contingency(truth, found))


def purity(truth: Labels, found: Labels) -> float:
    """Return the share of samples that belong to the commonest class of their cluster.

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], [1, 1, 0, 2])
    1.0
    """
    return _purity(contingency(truth, found))


def normalised_mutual_information(truth: Labels, found: Labels, average: Average = "max") -> float:
    """Return the mutual information over the larger of the two entropies, or over their mean.

    Parameters
    ----------
    truth, found : sequence of length n
    average : {"max", "arithmetic"}, default "max"
        "max" is what tables of multi-view clustering print; "arithmetic" is scikit-learn's default.

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
        raise ConfigurationError(f"{average!r} is no normaliser", where="average", hint='"max" or "arithmetic".')
    return _information(contingency(truth, found), average)


def adjusted_rand(truth: Labels, found: Labels) -> float:
    """Return the Rand index corrected for chance: 1 for the same partition, 0 on average for one drawn at random.

    Examples
    --------
    >>> adjusted_rand([0, 0, 1, 1], ["y", "y", "x", "x"]), round(adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]), 4)
    (1.0, -0.5)
    """
    return _adjusted_rand(contingency(truth, found))


def clustering_scores(truth: Labels, found: Labels) -> dict[str, float]:
    """Return every score of a partition against known classes.

    Returns
    -------
    dict
        "acc", "purity", "nmi" (over the larger entropy), "nmi_arithmetic", "ari".

    Examples
    --------
    >>> scores = clustering_scores([0, 0, 1, 1], [0, 0, 1, 2])
    >>> {name: round(value, 3) for name, value in scores.items()}
    {'acc': 0.75, 'purity': 1.0, 'nmi': 0.667, 'nmi_arithmetic': 0.8, 'ari': 0.571}
    """
    table = contingency(truth, found)
    return {
        "acc": _accuracy(table),
        "purity": _purity(table),
        "nmi": _information(table, "max"),
        "nmi_arithmetic": _information(table, "arithmetic"),
        "ari": _adjusted_rand(table),
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
        raise DataError("stability compares at least two labellings", where="labellings")
    return float(np.mean([adjusted_rand(one, other) for one, other in combinations(encoded, 2)]))


def silhouette(embedding: ArrayLike, labels: Labels, *, most: int = MOST_SILHOUETTES) -> float:
    """Return the mean silhouette of the samples: how much nearer a sample lies to its own cluster than to the next.

    Parameters
    ----------
    embedding : array of shape (n, c)
    labels : sequence of length n
        Between 2 and n - 1 clusters.
    most : int, default 5000
        Of more samples, this many are drawn (always the same) and compared with one another.

    Returns
    -------
    float
        From -1 to 1.

    Raises
    ------
    DataError
        A single cluster, or as many clusters as samples: no silhouette exists.

    Examples
    --------
    >>> round(silhouette([[0.0], [1.0], [9.0], [10.0]], ["a", "a", "b", "b"]), 3)
    0.889
    """
    from sklearn.metrics import silhouette_score

    rows, clusters = np.asarray(embedding, dtype=np.float64), _encode(labels, "labels")
    if rows.ndim != 2 or len(rows) != len(clusters) or not np.isfinite(rows).all():
        raise DataError(f"a table of {len(clusters)} finite rows is needed, one for each label", where="embedding")
    if len(rows) > most:
        drawn = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
        rows, clusters = rows[drawn], clusters[drawn]
    n_clusters = len(np.unique(clusters))
    if not 2 <= n_clusters < len(rows):
        raise DataError(f"{n_clusters} clusters of {len(rows)} samples have no silhouette", where="labels")
    return float(silhouette_score(rows, clusters))


def _accuracy(table: Integers) -> float:
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def _purity(table: Integers) -> float:
    return float(table.max(axis=0).sum() / table.sum())


def _information(table: Integers, average: Average) -> float:
    joint = table / table.sum()
    of_truth, of_found = (float(entr(joint.sum(axis=axis)).sum()) for axis in (1, 0))
    scale = max(of_truth, of_found) if average == "max" else (of_truth + of_found) / 2
    if min(table.shape) == 1:
        return float(max(table.shape) == 1)
    return float(np.clip((of_truth + of_found - entr(joint).sum()) / scale, 0.0, 1.0))


def _adjusted_rand(table: Integers) -> float:
    """Count pairs in whole numbers: of samples together in both labellings, in each one, and of all."""
    both, of_truth, of_found, every = (
        sum(int(count) * (int(count) - 1) // 2 for count in counts)
        for counts in (table[table > 1], table.sum(axis=1), table.sum(axis=0), (table.sum(),))
    )
    if of_truth == of_found == both:
        return 1.0
    expected = of_truth * of_found / every
    return float((both - expected) / ((of_truth + of_found) / 2 - expected))


def _encode(labels: Labels, where: str) -> Integers:
    """Return the labels as numbers from 0, in the order of their first sample."""
    listed = np.asarray(labels).tolist() if isinstance(labels, np.ndarray) else list(labels)
    if not listed:
        raise DataError("there is no sample", where=where)
    number: dict[Hashable, int] = {}
    try:
        missing = any(label is None or bool(label != label) for label in listed)
        encoded = [number.setdefault(label, len(number)) for label in listed]
    except (TypeError, ValueError) as error:
        raise DataError("a label is a single number or text", where=where) from error
    if missing:
        raise DataError("some labels are missing", where=where, hint="Leave the samples without a label out of both.")
    return np.array(encoded, dtype=np.int64)
