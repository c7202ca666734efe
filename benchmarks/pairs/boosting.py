"""FedXGB beside xgboost on the pooled records: the same trees from the same bins."""

from __future__ import annotations

from typing import Any

import numpy as np
from pairing import Pair, Pairs, Way

import multicentre as mc
from multicentre.boosting.messages import Cuts
from multicentre.boosting.records import digitise
from pairs.sites import N_SITES, divide, fit

N_COLUMNS, N_BINS = 10, 128
# Settings of the study that FedXGB reproduces.
TREES = {"max_depth": 3, "learning_rate": 0.6}


def pairs(quick: bool) -> Pairs:
    """Yield fits of two sizes."""
    sizes = [(1_000, 10)] if quick else [(10_000, 100), (100_000, 100)]
    for n_records, n_rounds in sizes:
        yield trees(n_records, n_rounds)


def trees(n_records: int, n_rounds: int) -> Pair:
    """Pair fits with declared cuts, and one whose cuts are searched first, with the pooled fit."""
    X, y = simulate(n_records)
    sites = divide(mc.data.TableData(X, y))
    cuts = [np.unique(np.float32(np.quantile(x, np.arange(1, N_BINS) / N_BINS))) for x in X.T]
    sizes = np.array([len(edges) for edges in cuts], dtype=np.int32)
    binned = digitise(X.astype(np.float32), Cuts(np.concatenate(cuts), sizes)).astype(np.float32)
    # Our base score is the share of events, as a 32-bit number.
    options = {"objective": "binary:logistic", "base_score": float(np.float32(y.mean())), "nthread": 1, "max_bin": 256}

    def pooled() -> Any:
        import xgboost

        rows = xgboost.DMatrix(binned, label=y)
        return xgboost.train({**options, **TREES}, rows, n_rounds).predict(rows)

    def ours(lists: list[list[float]] | None, *, masked: bool) -> Any:
        model = mc.boosting.FedXGBClassifier(n_rounds, cuts=lists, max_bins=N_BINS, **TREES)
        return fit(model, sites, masked=masked)

    lists = [edges.tolist() for edges in cuts]
    return Pair(
        f"Gradient boosting, {n_rounds} trees of depth {TREES['max_depth']}",
        f"{n_records:,} records, {N_COLUMNS} columns, {N_BINS} bins, {N_SITES} sites",
        [
            Way("unmasked", lambda: ours(lists, masked=False)),
            Way("masked", lambda: ours(lists, masked=True)),
            Way("masked, cuts searched", lambda: ours(None, masked=True), compared=False),  # other cuts, other trees
        ],
        [Way("xgboost, hist", pooled, "xgboost")],
        lambda ours, peer: {"largest difference of a probability": np.abs(ours.predict_proba(X)[:, 1] - peer).max()},
    )


def simulate(n_records: int) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates and an outcome that depends on some of them, alone and together."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n_records, N_COLUMNS))
    log_odds = X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 3] > 0) * X[:, 4] ** 2 - 1
    return X, (generator.random(n_records) < 1 / (1 + np.exp(-log_odds))).astype(int)
