"""Rounds of Fed-mv-PPCA until the objective settles, and the loss of stopping there.

Usage: python benchmarks/ppca_rounds.py

The loss is what 300 further rounds with a tolerance of 1e-7 add to the objective, in nats per patient.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np

import multicentre as mc
from multicentre.data import MultiViewData

LIKELIHOOD = {"case_mix_weight": 0.0, "loadings_sd": math.inf, "site_intercepts": False}
FITS: dict[str, dict[str, Any]] = {
    "invariant": {},
    "invariant, maximum likelihood": LIKELIHOOD,
    "hierarchical": {"method": "hierarchical"},
}


def wisconsin() -> dict[str, MultiViewData]:
    """Return six sites of the Wisconsin breast cancer data, some of which lack views."""
    parts = mc.datasets.split_scenario(mc.datasets.load_wisconsin(), "G/K", n_sites=6, random_state=0)
    return {name: part.data for name, part in parts.items()}


def unlike_sites(n_sites: int = 20, n: int = 40, q: int = 3) -> dict[str, MultiViewData]:
    """Simulate sites with offsets as large as the spread of patients; every other one lacks a view."""
    rng = np.random.default_rng(0)
    loadings = {view: rng.standard_normal((d, q)) for view, d in {"clinic": 8, "image": 12, "fluid": 6}.items()}
    sites = {}
    for c in range(n_sites):
        latent, views = rng.standard_normal((n, q)), {}
        for view, W in loadings.items():
            offset = np.sqrt(q + 0.36) * rng.standard_normal(len(W))
            views[view] = latent @ W.T + offset + 0.6 * rng.standard_normal((n, len(W)))
        if c % 2:
            del views[("image", "fluid")[c // 2 % 2]]
        sites[f"site-{c:02d}"] = MultiViewData(views)
    return sites


def main() -> None:
    """Print one line per data set and fit."""
    warnings.simplefilter("ignore")
    data: dict[str, tuple[dict[str, MultiViewData], int, Literal["feature", "view"]]] = {
        "wisconsin": (wisconsin(), 4, "feature"),
        "unlike sites": (unlike_sites(), 3, "view"),
    }
    print("data\tfit\trounds by loop\trefused\tloss, nats per patient")
    for name, (sites, q, scale) in data.items():
        for kind, options in FITS.items():
            models = [
                mc.multiview.FedMvPPCA(q, scale=scale, tol=tol, max_iter=most, **options).fit(
                    mc.Federation.in_process(sites)
                )
                for tol, most in ((1e-4, 100), (1e-7, 300))
            ]
            history = models[0].history_
            rounds = [
                sum(entry["phase"] == phase for entry in history) for phase in sorted({e["phase"] for e in history})
            ]
            loss = models[1].history_[-1]["objective"] - history[-1]["objective"]
            refused = int(sum(entry["refused"] for entry in history))
            print(f"{name}\t{kind}\t{', '.join(map(str, rounds))}\t{refused}\t{loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
