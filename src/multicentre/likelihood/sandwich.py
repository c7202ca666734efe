"""Robust standard errors: products of the scores of patients or of clusters, and their small-sample factors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError

Floats = NDArray[np.float64]


def score_products(
    scores: Floats, weights: Floats, clusters: NDArray[np.int64] | None, *, frequency: bool
) -> tuple[float, Floats]:
    """Return the number of clusters, of patients if there are none, and the sum of products of their scores.

    Parameters
    ----------
    scores : array of shape (n, w)
        First derivatives of each patient's log-likelihood.
    weights : array of shape (n,)
    clusters : array of int, shape (n,), optional
        Cluster of each patient, numbered from 0.
    frequency : bool
        True if a patient of weight m stands for m patients.

    Examples
    --------
    >>> n_clusters, products = score_products(np.array([[1.0], [2.0]]), np.ones(2), np.array([0, 0]), frequency=True)
    >>> n_clusters, products.tolist()
    (1.0, [[9.0]])
    """
    if clusters is None:
        squared = weights if frequency else weights**2
        return float(len(scores)), scores.T @ (scores * squared[:, None])
    summed = np.zeros((int(clusters.max()) + 1, scores.shape[1]))
    np.add.at(summed, clusters, scores * weights[:, None])
    return float(len(summed)), summed.T @ summed


def small_sample_factor(errors: str, size: float, n_parameters: int, n_clusters: float) -> float:
    """Return the factor of a robust covariance: n / (n - p), with clusters G / (G - 1) (n - 1) / (n - p).

    Raises
    ------
    DataError
        There is one cluster only.

    Examples
    --------
    >>> small_sample_factor("HC0", 100.0, 20, 100.0), small_sample_factor("HC1", 100.0, 20, 100.0)
    (1.0, 1.25)
    """
    if errors == "HC1":
        return size / (size - n_parameters)
    if errors == "cluster":
        if n_clusters < 2:
            raise DataError(
                "there must be at least two clusters; got one",
                where="cluster",
                hint='Set errors="HC1", or another column.',
            )
        return n_clusters / (n_clusters - 1.0) * (size - 1.0) / (size - n_parameters)
    return 1.0
