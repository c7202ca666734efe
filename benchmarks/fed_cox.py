"""Distance of approximate Cox models from the pooled fit, and what baselines of single sites cost in concordance.

Sections: near (grids of times, and one round; 1,904 patients, 9 columns, 4 sites), small (baselines of single sites
where sites are small; 300 events). Without arguments both are run.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.survival.cox.estimator import FedCox

LATEST = 2000.0
OPEN = {"min_patients": 0, "exact_times": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: both")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    rows = [row for name in given.sections or SECTIONS for row in SECTIONS[name]()]
    titles = ["what", "errors off", "concordance lost", "least", "largest"]
    show("Federated Cox model", titles, [[_cell(row.get(title)) for title in titles] for row in rows])
    if given.json:
        write_json(given.json, {"fed_cox": rows})


def near() -> list[dict[str, Any]]:
    """Return how far approximations are from the pooled fit, in its standard errors: mean over columns, and largest."""
    sites = simulate(1904, 9, n_sites=4)
    exact, strata = fitted(sites, "exact"), fitted(sites, "stratified")
    grids = [
        (f"grid of {n_times}, {ties}", fitted(sites, "grid", n_times=n_times, ties=ties, horizon=LATEST), exact)
        for ties in ("breslow", "efron")
        for n_times in (64, 256, 128)
    ]
    others = [
        ("the same to the default horizon", fitted(sites, "grid"), exact),
        ("one round, exact", fitted(sites, "exact", one_round=True), exact),
        ("one round, stratified", fitted(sites, "stratified", one_round=True), strata),
    ]
    rows = []
    for what, model, aim in grids + others:
        off = np.abs(model.coef_ - aim.coef_) / aim.standard_errors_
        rows.append({"what": what, "errors off": float(off.mean()), "largest": float(off.max())})
    return rows


def small() -> list[dict[str, Any]]:
    """Return by how much a shared baseline ranks new patients better: mean over scenarios, least and largest.

    Scenarios: 10 or 30 columns; none or 40 % of a column's variance lies between sites; the sites' log baselines have a
    deviation of 0 or 0.5. Each is drawn three times.
    """
    scenarios = list(itertools.product((10, 30), (0.0, 0.4), (0.0, 0.5)))
    rows = []
    for n_events in (3, 5, 10, 20):
        lost = [np.mean([_lost(n_events, *scenario, seed) for seed in range(3)]) for scenario in scenarios]
        found = {"concordance lost": float(np.mean(lost)), "least": float(min(lost)), "largest": float(max(lost))}
        rows.append({"what": f"baselines of the sites' own, {n_events} events per site", **found})
    return rows


def _lost(n_events: int, n_columns: int, between: float, spread: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    effects = np.where(np.arange(n_columns) < 6, 0.35 * rng.normal(size=n_columns), 0.0)

    def draw(n: int, baseline: float, between: float) -> mc.data.SurvivalData:
        X = np.sqrt(between) * rng.normal(size=n_columns) + np.sqrt(1 - between) * rng.normal(size=(n, n_columns))
        time_, end = rng.exponential(np.exp(-X @ effects - baseline)), rng.exponential(1.5, n)
        return mc.data.SurvivalData(X, np.minimum(time_, end), time_ <= end)

    # 58 % of the patients have the event.
    sites = {
        f"site-{site}": draw(round(n_events / 0.58), spread * rng.normal(), between) for site in range(300 // n_events)
    }
    new = draw(4000, 0.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own, shared = (fitted(sites, times).score(new) for times in ("stratified", "grid"))
    return shared - own


def fitted(sites: dict[str, mc.data.SurvivalData], times: str, **options: Any) -> FedCox:
    """Return one unmasked fit where policies ask for nothing."""
    with mc.Federation.in_process(sites, policy=mc.Policy(**OPEN), secure_sum=False, listener=Listener()) as federation:
        return FedCox(times, **options).fit(federation)


def simulate(n_patients: int, n_columns: int, n_sites: int) -> dict[str, mc.data.SurvivalData]:
    """Return sites whose patients' hazards depend on every column a little."""
    rng = np.random.default_rng(0)
    effects = 0.2 * rng.normal(size=n_columns)
    sites = {}
    for site in range(n_sites):
        size = n_patients // n_sites + (site < n_patients % n_sites)
        X = rng.normal(size=(size, n_columns))
        time_ = 500.0 * rng.exponential(size=size) * np.exp(-X @ effects)
        end = rng.uniform(300.0, 2000.0, size=size)
        sites[f"site-{site}"] = mc.data.SurvivalData(X, np.minimum(time_, end), time_ <= end)
    return sites


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else f"{value:.4g}"


SECTIONS: dict[str, Callable[[], list[dict[str, Any]]]] = {"near": near, "small": small}


if __name__ == "__main__":
    main()
