"""Patients whose columns and times are binned without loss, for tests of trees."""

import numpy as np

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Patients, Prepared


def draw_data(n=240, *, seed=0):
    """Return patients with few distinct values: a rounded normal column, two binary ones, a constant, and noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=n).round(1),
            rng.random(n) < 0.4,
            rng.random(n) < 0.1,
            np.full(n, 2.0),
            rng.integers(0, 6, n),
        ]
    )
    time = np.ceil(rng.exponential(20.0 * np.exp(-X[:, 0] - X[:, 1])))
    censoring = np.ceil(rng.exponential(30.0, n))
    return SurvivalData(X, np.minimum(time, censoring), (time <= censoring).astype(int))


def lossless(data, *, grid=None):
    """Return patients under an agreement that has an edge between all values, and all times on its grid."""
    values = [np.unique(column) for column in data.X.T]
    edges = [(distinct[1:] + distinct[:-1]) / 2 for distinct in values]
    times = np.unique(data.time) if grid is None else grid
    n, first = float(len(data)), np.cumsum([0, *map(len, edges)])
    centre, spread = data.X.mean(axis=0), np.ones(data.X.shape[1])
    total = float((data.event == 1).sum())
    agreed = Prepared(data.columns, "", 1, n, total, times, centre, spread, np.concatenate(edges), first)
    return Patients(data, agreed)
