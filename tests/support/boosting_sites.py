"""Sites for tests of boosting: simulated survival data, and hypotheses that a test prescribes."""

import itertools
from dataclasses import replace

import numpy as np

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.survival.fitted_models import Trees

ANYTHING = mc.Policy(min_patients=0)
# Parameters with which FedSurvBoost follows the text of its paper, with the equations corrected.
CORRECTED_TEXT = {
    "candidates": "best",
    "loss": "median",
    "norm": "max",
    "learning_rate": 1.0,
    "weight_cap": None,
    "recalibrate": False,
}


def simulate(n=240, d=3, *, seed=5, censored=True):
    """Return patients whose hazard depends on the first two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    time = np.ceil(20 * rng.exponential(np.exp(-X[:, 0] - np.abs(X[:, 1]))))
    end = np.ceil(rng.uniform(5, 60, n)) if censored else np.full(n, np.inf)
    return SurvivalData(X, np.minimum(time, end), time <= end, unit="days")


def split(data, n_sites):
    """Return the patients dealt out to sites."""
    return {f"site-{i}": data.take(np.arange(i, len(data), n_sites)) for i in range(n_sites)}


def federate(sites, **options):
    """Return an in-process federation whose policy requests for nothing, unless it is given."""
    return mc.Federation.in_process(sites, **{"policy": ANYTHING, **options})


def tree_of_times(found, grid):
    """Return scikit-learn's regression tree as one whose leaves' curves have its predictions for mean times."""
    tree = found.tree_
    inner = tree.children_left >= 0
    left, right = (np.where(inner, child, -1).astype(np.int32) for child in (tree.children_left, tree.children_right))
    column = np.where(inner, tree.feature, -1).astype(np.int32)
    threshold = np.where(inner, tree.threshold, 0.0)
    leaf = np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32)
    curves = np.array([curve_of_mean(value, grid) for value in tree.value[~inner, 0, 0]])
    one = np.zeros(1, dtype=np.int32), np.ones(1)
    return Trees(grid, *one, column, threshold, left, right, leaf, curves, patients=100)


def curve_of_mean(mean, grid):
    """Return a falling curve with the given mean time survived up to the horizon, at least the first time."""
    reached = np.clip((mean - grid[:-1]) / np.diff(grid), 0.0, 1.0)
    return np.append(reached, 0.0)


def prescribe(monkeypatch, trees, n_sites):
    """Let every site's fit return the trees prescribed, one a round."""
    calls = itertools.count()

    def fit(patients, weights, settings=None, rng=None):
        number = next(calls) // n_sites
        return replace(trees[min(number, len(trees) - 1)], times=patients.agreed.times)

    monkeypatch.setattr("multicentre.survival.surv_boost.site.fit_trees", fit)
