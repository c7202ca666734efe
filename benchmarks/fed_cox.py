"""Seconds, memory and nearness to the pooled fit of the federated Cox model, by times.

Sections: support (9,105 patients, 46 columns, 8 sites), million (1,000,000 patients, 50 columns, 8 sites), near (how
far grids and one round are from the pooled fit; 1,904 patients, 9 columns, 4 sites), small (what baselines of the
sites' own cost in concordance where sites are small; 300 events), learner (the weak learner next to scikit-survival,
910 patients, 55 columns). Without arguments support, near and learner are run.
Memory is the peak of the process during a fit less what it held before; the data of a million are 381 MiB.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.survival.agreement.messages import Agreed, Patients
from multicentre.survival.cox.estimator import FedCox
from multicentre.survival.learners.cohort import fit_cox

N_SITES = 8
LATEST = 2000.0
OPEN = {"min_patients": 0, "exact_times": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: support, near, learner")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    rows = [row for name in given.sections or ("support", "near", "learner") for row in SECTIONS[name]()]
    titles = ["what", "s", "cpu s", "rounds", "times", "MiB sent", "MiB held more", "errors off"]
    titles += ["concordance lost", "least", "largest"]
    show("Federated Cox model", titles, [[_cell(row.get(title)) for title in titles] for row in rows])
    if given.json:
        write_json(given.json, {"fed_cox": rows})


def support() -> list[dict[str, Any]]:
    """Fit every kind of times, unmasked and masked."""
    sites = simulate(9105, 46, days=True)
    kinds = [("stratified", False), ("grid", False), ("exact", False), ("stratified", True), ("grid", True)]
    return [fit(f"support, {times}, {_how(secure)}", sites, times, secure=secure) for times, secure in kinds]


def million() -> list[dict[str, Any]]:
    """Fit a million patients, with baselines of the sites' own and on a grid."""
    sites = simulate(1_000_000, 50, days=False)
    return [fit(f"a million, {times}, unmasked", sites, times, secure=False) for times in ("stratified", "grid")]


def near() -> list[dict[str, Any]]:
    """Return how far approximations are from the pooled fit, in its standard errors: mean over columns, and largest."""
    sites = simulate(1904, 9, days=False, n_sites=4)
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


def learner() -> list[dict[str, Any]]:
    """Fit one site's weighted patients, beside scikit-survival where it is installed."""
    data = next(iter(simulate(910 * N_SITES, 55, days=True).values()))
    n_columns = data.X.shape[1]
    grid = np.unique(np.quantile(data.time, np.arange(1, 65) / 64))
    ends = np.zeros(n_columns + 1, dtype=np.int64)
    centre, spread = data.X.mean(axis=0), data.X.std(axis=0)
    agreed = Agreed(data.columns, "", 1, 910.0, 1.0, grid, centre, spread, np.zeros(0), ends)
    patients, weights = Patients(data, agreed), np.random.default_rng(0).exponential(size=len(data))
    rows = patients.standardised
    found = [{"what": "learner, 910 x 55", "cpu s": least(lambda: fit_cox(patients, weights))}]
    try:
        from sksurv.linear_model import CoxPHSurvivalAnalysis
    except ImportError:
        return found
    peer = CoxPHSurvivalAnalysis(alpha=1.0)
    return [*found, {"what": "scikit-survival, unweighted", "cpu s": least(lambda: peer.fit(rows, data.outcome))}]


def simulate(n_patients: int, n_columns: int, *, days: bool, n_sites: int = N_SITES) -> dict[str, mc.data.SurvivalData]:
    """Return sites whose patients' hazards depend on every column a little; whole days make ties."""
    rng = np.random.default_rng(0)
    effects = 0.2 * rng.normal(size=n_columns)
    sites = {}
    for site in range(n_sites):
        size = n_patients // n_sites + (site < n_patients % n_sites)
        X = rng.normal(size=(size, n_columns))
        time_ = 500.0 * rng.exponential(size=size) * np.exp(-X @ effects)
        end = rng.uniform(300.0, 2000.0, size=size)
        followed = np.minimum(time_, end)
        sites[f"site-{site}"] = mc.data.SurvivalData(X, np.ceil(followed) if days else followed, time_ <= end)
    return sites


def fit(what: str, sites: dict[str, mc.data.SurvivalData], times: str, *, secure: bool) -> dict[str, Any]:
    """Return seconds, rounds and memory of one fit."""
    with mc.Federation.in_process(
        sites, policy=mc.Policy(**OPEN), secure_sum=secure, listener=Listener()
    ) as federation:
        held = memory_mib("VmRSS")
        forget_peak()
        started, worked = time.perf_counter(), time.process_time()
        model = FedCox(times).fit(federation)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
        sent = sum(federation.traffic.bytes_from_sites.values())
        more = memory_mib("VmHWM") - held
    return {
        "what": what,
        "s": seconds,
        "cpu s": cpu_seconds,
        "rounds": model.n_iter_,
        "times": len(model.agreed_.times),
        "MiB sent": sent / 2**20,
        "MiB held more": more,
    }


def least(run: Callable[[], Any], repetitions: int = 7) -> float:
    """Return the least seconds of the processor of some runs."""
    seconds = []
    for _ in range(repetitions):
        worked = time.process_time()
        run()
        seconds.append(time.process_time() - worked)
    return min(seconds)


def memory_mib(kind: str) -> float:
    """Return what the process holds (VmRSS) or held at most (VmHWM); not a number where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(kind)), float("nan"))


def forget_peak() -> None:
    """Let the most that the process held begin anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else f"{value:.4g}"


def _how(secure: bool) -> str:
    return "masked" if secure else "unmasked"


SECTIONS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "support": support,
    "million": million,
    "near": near,
    "small": small,
    "learner": learner,
}


if __name__ == "__main__":
    main()
