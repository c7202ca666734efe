"""Patients whose hazards change over time, and a plain implementation to hold the method against."""

import numpy as np

import multicentre as mc


def simulate(n=600, seed=0):
    """Return patients: one column acts early, one late, one is a category, one is noise, some values are missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 2] = rng.random(n) < 0.3
    early = rng.exponential(np.exp(-0.9 * X[:, 0] - 0.6 * X[:, 2]))
    time = np.where(early < 1.0, early, 1.0 + rng.exponential(np.exp(0.9 * X[:, 1])))
    leaving = rng.exponential(3.0, n)
    X[rng.random((n, 4)) < 0.02] = np.nan
    return mc.data.SurvivalData(X, np.minimum(time, leaving), (time <= leaving).astype(int))


def federate(data, parts, **options):
    options.setdefault("policy", mc.Policy(min_patients=0))
    return mc.Federation.in_process({f"site-{k}": data.take(part) for k, part in enumerate(parts)}, **options)


def parts_of(data, n_sites, order):
    """Return rows by site: at random, by time, or by the first column."""
    n = len(data)
    ranked = {
        "random": np.random.default_rng(5).permutation(n),
        "by time": np.argsort(data.time),
        "by column": np.argsort(np.nan_to_num(data.X[:, 0])),
    }
    return np.array_split(ranked[order], n_sites)


def boost_plainly(  # noqa: C901
    data, agreed, *, n_estimators, max_depth, learning_rate, l2_regularization, least, used=None
):
    """Return curves of a boosted model of hazards, and the rows, features and outcomes that it was fitted on.

    With `used` (one flag per patient), trees use some of the patients; the initial hazard is that of all.
    """
    K, n = len(agreed.times), len(data)
    X = np.where(np.isnan(data.X), agreed.centre, data.X)
    rows, y = [], []
    for i in range(n):
        t = data.time[i]
        k = int(np.sum(agreed.times < t))
        happened = data.event[i] == 1 and k < K
        for j in range(min(k + 1, K)):
            start, end = (agreed.times[j - 1] if j else 0.0), agreed.times[j]
            if j < k or happened or t - start >= 0.5 * (end - start):
                rows.append((i, j))
                y.append(1.0 if happened and j == k else 0.0)
    rows, y = np.array(rows), np.array(y)
    features = np.column_stack([X[rows[:, 0]], rows[:, 1]])
    cuts = [*(agreed.edges_of(c) for c in range(X.shape[1])), np.arange(K - 1.0)]
    D = np.array([y[rows[:, 1] == j].sum() for j in range(K)])
    N = np.array([np.sum(rows[:, 1] == j) for j in range(K)])
    base = np.log((D + 0.5) / (N - D + 0.5))
    margin = base[rows[:, 1]]
    everywhere = np.column_stack([np.repeat(X, K, axis=0), np.tile(np.arange(K), n)])
    outcome = np.tile(base, n)

    def grow(inside, wholly, depth):
        G, H = g[inside].sum(), h[inside].sum()
        best = (1e-12, None, None)
        for c in range(features.shape[1]) if depth else ():
            for cut in cuts[c]:
                left = inside & (features[:, c] <= cut)
                gl, hl = g[left].sum(), h[left].sum()
                if min(hl, H - hl) >= least:
                    gain = (
                        gl**2 / (hl + l2_regularization)
                        + (G - gl) ** 2 / (H - hl + l2_regularization)
                        - G**2 / (H + l2_regularization)
                    )
                    if gain > best[0] + 1e-9:
                        best = (gain, c, cut)
        if best[1] is None:
            margin[inside] -= learning_rate * G / (H + l2_regularization)
            outcome[wholly] -= learning_rate * G / (H + l2_regularization)
            return
        goes, all_go = features[:, best[1]] <= best[2], everywhere[:, best[1]] <= best[2]
        grow(inside & goes, wholly & all_go, depth - 1)
        grow(inside & ~goes, wholly & ~all_go, depth - 1)

    for _ in range(n_estimators):
        p = 1 / (1 + np.exp(-margin))
        g, h = p - y, p * (1 - p)
        inside = np.ones(len(y), dtype=bool) if used is None else used[rows[:, 0]]
        grow(inside, np.ones(len(outcome), dtype=bool), max_depth)
    hazards = 1 / (1 + np.exp(-outcome.reshape(n, K)))
    return np.cumprod(1 - hazards, axis=1), rows, features, y
