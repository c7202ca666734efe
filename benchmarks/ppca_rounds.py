"""Rounds of Fed-mv-PPCA until the objective settles, and the loss of stopping there.

Usage: python benchmarks/ppca_rounds.py [chosen] [reported]

Settings of the rounds were chosen on the seeds CHOSEN, and are reported on the seeds REPORTED, which chose nothing.
The loss is what 300 further rounds with a tolerance of 1e-7 add to the objective, in nats per patient.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
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


CHOSEN, REPORTED = (0, 1), (8, 9, 10)


def wisconsin(seed: int) -> dict[str, MultiViewData]:
    """Return six sites of the Wisconsin breast cancer data, some of which lack views."""
    parts = mc.datasets.split_scenario(mc.datasets.load_wisconsin(), "G/K", n_sites=6, random_state=seed)
    return {name: part.data for name, part in parts.items()}


def simulated(seed: int) -> dict[str, MultiViewData]:
    """Return six sites of simulated views with little noise and the same loadings, some of which lack views."""
    parts = mc.datasets.split_scenario(mc.datasets.simulate_sd(random_state=seed), "G/K", n_sites=6, random_state=0)
    return {name: part.data for name, part in parts.items()}


def unlike_sites(seed: int, n_sites: int = 20, n: int = 40, q: int = 3) -> dict[str, MultiViewData]:
    """Simulate sites with offsets as large as the spread of patients; every other one lacks a view."""
    rng = np.random.default_rng(seed)
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


Sites = Callable[[int], dict[str, MultiViewData]]
# Sites by seed, latent dimensions and scale.
DATA: dict[str, tuple[Sites, int, Literal["feature", "view"]]] = {
    "wisconsin": (wisconsin, 4, "feature"),
    "unlike sites": (unlike_sites, 3, "view"),
    "simulated views": (simulated, 5, "view"),
}


def main() -> None:
    """Print one line per data set, seed and fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], "chosen", "reported"], help="default: both")
    sections = parser.parse_args().sections or ["chosen", "reported"]
    warnings.simplefilter("ignore")
    print("seeds\tdata\tseed\tfit\trounds by loop\trefused\tloss, nats per patient")
    for section in sections:
        for seed in CHOSEN if section == "chosen" else REPORTED:
            for name, (sites, q, scale) in DATA.items():
                for kind, options in FITS.items():
                    line = measure(sites(seed), q, scale=scale, **options)
                    print(f"{section}\t{name}\t{seed}\t{kind}\t{line}", flush=True)


def measure(sites: dict[str, MultiViewData], q: int, **options: Any) -> str:
    """Return the rounds of each loop, those refused, and the loss."""
    models = [
        mc.multiview.FedMvPPCA(q, tol=tol, max_iter=most, **options).fit(mc.Federation.in_process(sites))
        for tol, most in ((1e-4, 100), (1e-7, 300))
    ]
    history = models[0].history_
    phases = sorted({entry["phase"] for entry in history})
    rounds = [sum(entry["phase"] == phase for entry in history) for phase in phases]
    loss = models[1].history_[-1]["objective"] - history[-1]["objective"]
    refused = int(sum(entry["refused"] for entry in history))
    return f"{', '.join(map(str, rounds))}\t{refused}\t{loss:.4f}"


if __name__ == "__main__":
    main()
