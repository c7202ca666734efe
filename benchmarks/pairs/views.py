"""Fed-mv-PPCA beside mofapy2 and scikit-learn on the pooled patients."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import numpy as np
from pairing import Pair, Pairs, Way
from sklearn.decomposition import PCA, FactorAnalysis

import multicentre as mc
from pairs.sites import N_SITES, divide, fit

# Sizes of the handwritten digits; their rows are simulated, so that the benchmark needs no file.
SIZES = {"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6}
N_COMPONENTS = 10


def pairs(quick: bool) -> Pairs:
    """Yield fits of latent dimensions, each with the reconstruction of all rows."""
    n, iterations = (100, 5) if quick else (1_400, 100)
    generator = np.random.default_rng(0)
    d, q = sum(SIZES.values()), N_COMPONENTS
    X = generator.standard_normal((n, q)) @ generator.standard_normal((q, d)) + generator.standard_normal((n, d))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    ends = np.cumsum(list(SIZES.values()))[:-1]
    views = dict(zip(SIZES, np.split(X, ends, axis=1), strict=True))
    data = mc.data.MultiViewData(views)
    sites = divide(data)

    def explained(rebuilt: Any) -> float:
        return float(1 - ((X - rebuilt) ** 2).sum() / (X**2).sum())

    def ours(*, masked: bool) -> Any:
        model = fit(mc.multiview.FedMvPPCA(q, small_views=True), sites, masked=masked)
        rebuilt = model.reconstruct(data)
        return np.hstack([rebuilt[view] for view in SIZES])

    def sklearn(model: Any) -> Any:
        return model.fit_transform(X) @ model.components_ + model.mean_

    yield Pair(
        f"Latent dimensions of six views, q = {q}, and reconstruction",
        f"{n:,} patients, {d} columns, {N_SITES} sites",
        [Way("unmasked", lambda: ours(masked=False)), Way("masked", lambda: ours(masked=True))],
        [
            Way("mofapy2", lambda: mofa(list(views.values()), q, iterations), "mofapy2"),
            Way("scikit-learn, FactorAnalysis", lambda: sklearn(FactorAnalysis(q))),
            Way("scikit-learn, PCA", lambda: sklearn(PCA(q, svd_solver="full"))),
        ],
        lambda ours, peer: {"variance explained, ours": explained(ours), "variance explained, peer": explained(peer)},
    )


def mofa(views: list[np.ndarray], n_components: int, iterations: int) -> np.ndarray:
    """Return the rows that mofapy2 reconstructs, with its fast criterion of convergence."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entry = entry_point()
        entry.set_data_options(scale_views=False)
        entry.set_data_matrix([[view] for view in views])
        entry.set_model_options(factors=n_components)
        entry.set_train_options(iter=iterations, convergence_mode="fast", seed=1, quiet=True)
        entry.build()
        entry.run()
    nodes = entry.model.nodes
    latents, loadings = nodes["Z"].getExpectation(), nodes["W"].getExpectation()
    return np.hstack([latents @ weights.T for weights in loadings])
