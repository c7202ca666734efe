"""Fits mofapy2 on the views of an archive and prints seconds and variance explained; ppca_speed.py calls it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings

import numpy as np
from measuring import median_seconds
from mofapy2.run.entry_point import entry_point


def main() -> None:
    rows, n_components, n_iterations, n_runs = sys.argv[1], *map(int, sys.argv[2:])
    with np.load(rows) as archive:
        views = [archive[name] for name in archive.files]
    kept = {}

    def fit() -> None:
        entry = entry_point()
        entry.set_data_options(scale_views=False)
        entry.set_data_matrix([[view] for view in views])
        entry.set_model_options(factors=n_components)
        entry.set_train_options(iter=n_iterations, convergence_mode="fast", seed=1, quiet=True)
        entry.build()
        entry.run()
        kept["entry"] = entry

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = median_seconds(fit, n_runs)
    nodes = kept["entry"].model.nodes
    n_used = int(np.isfinite(kept["entry"].model.getTrainingStats()["elbo"]).sum())
    latents, loadings = nodes["Z"].getExpectation(), nodes["W"].getExpectation()
    left = sum(((view - latents @ weights.T) ** 2).sum() for view, weights in zip(views, loadings, strict=True))
    explained = 1 - left / sum((view**2).sum() for view in views)
    found = {"seconds": seconds, "explained": float(explained), "iterations": n_used, "factors": latents.shape[1]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
