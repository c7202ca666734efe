"""What the columns of a view look like in each cluster, told so coarsely that no patient shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
STEP = 0.25
MOST = 4.0


@dataclass(frozen=True)
class Profile:
    """One view's clusters.

    Parameters
    ----------
    sizes : int array of shape (c,)
        Patients of a cluster who have the view; 0 where they are few.
    means : array of shape (c, d)
        Mean of a column in a cluster, in standard deviations from the mean of all, to a quarter and at most 4; 0 in
        clusters of few.
    """

    sizes: Integers
    means: Floats


def profile_columns(values: Floats, labels: Integers, n_clusters: int, least: int) -> Profile:
    """Return the profile of a view.

    Parameters
    ----------
    values : array of shape (n, d)
        Rows of missing values are of patients who lack the view.
    labels : int array of shape (n,)
        0 to `n_clusters` - 1; -1 for none.
    n_clusters : int
    least : int
        Clusters of fewer patients who have the view are left out.

    Examples
    --------
    >>> found = profile_columns(np.array([[0.0], [0.2], [4.0], [4.2], [9.0]]), np.array([0, 0, 1, 1, 2]), 3, 2)
    >>> found.sizes.tolist(), found.means.ravel().tolist()
    ([2, 2, 0], [-1.0, 0.25, 0.0])
    """
    present = ~np.isnan(values).all(axis=1)
    rows, own = values[present], labels[present]
    sizes = np.bincount(own[own >= 0], minlength=n_clusters)
    sizes = np.where(sizes < least, 0, sizes)
    spread = rows.std(axis=0)
    standard = np.divide(rows - rows.mean(axis=0), spread, out=np.zeros_like(rows), where=spread > 0)
    means = np.zeros((n_clusters, values.shape[1]))
    for cluster in np.flatnonzero(sizes):
        means[cluster] = standard[own == cluster].mean(axis=0)
    return Profile(sizes.astype(np.int64), np.clip(STEP * np.rint(means / STEP), -MOST, MOST) + 0.0)
