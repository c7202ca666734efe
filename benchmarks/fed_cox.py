"""Seconds, memory and nearness to the pooled fit of the federated Cox model, by times.

Sections: support (9,105 patients, 46 columns, 8 sites), million (1,000,000 patients, 50 columns, 8 sites), near (how
far grids and one round are from the pooled fit; 1,904 patients, 9 columns, 4 sites), learner (the weak learner beside
scikit-survival, 910 patients, 55 columns). Without arguments all but the second are run.
Memory is the peak of the process during a fit less what it held before; the data of a million are 381 MiB.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.federation.progress import Silence
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.cox.estimator import FedCox
from multicentre.survival.learners.cox import fit_cox

N_SITES = 8
LATEST = 2000.0
OPEN = {"min_patients": 0, "exact_times": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: all but million")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    rows = [row for name in given.sections or ("support", "near", "learner") for row in SECTIONS[name]()]
    titles = ["what", "s", "cpu s", "rounds", "times", "MiB sent", "MiB held more", "errors off", "largest"]
    show("Federated Cox model", titles, [[_cell(row.get(title)) for title in titles] for row in rows])
    if given.json:
        write_json(given.json, {"fed_cox": rows})


def support() -> list[dict[str, Any]]:
    """Fit every kind of times, in clear and masked."""
    sites = simulate(9105, 46, days=True)
    kinds = [("stratified", False), ("grid", False), ("exact", False), ("stratified", True), ("grid", True)]
    return [fit(f"support, {times}, {_how(secure)}", sites, times, secure=secure) for times, secure in kinds]


def million() -> list[dict[str, Any]]:
    """Fit a million patients, with baselines of the sites' own and on a grid."""
    sites = simulate(1_000_000, 50, days=False)
    return [fit(f"a million, {times}, in clear", sites, times, secure=False) for times in ("stratified", "grid")]


def near() -> list[dict[str, Any]]:
    """Return how far approximations are from the pooled fit, in its standard errors: mean over columns, and largest."""
    sites = simulate(1904, 9, days=False, n_sites=4)
    exact, strata = fitted(sites, "exact"), fitted(sites, "stratified")
    grids = [
        (f"grid of {n_times}, {ties}", fitted(sites, "grid", n_times=n_times, ties=ties, horizon=LATEST), exact)
        for ties in ("breslow", "efron")
        for n_times in (64, 256, 128)
    ]
    wanted = mc.Policy(min_patients=10)
    others = [
        ("the same to the default horizon", fitted(sites, "grid"), exact),
        ("the same in clear, 10 patients", fitted(sites, "grid", horizon=LATEST, policy=wanted), exact),
        ("one round, exact", fitted(sites, "exact", one_round=True), exact),
        ("one round, stratified", fitted(sites, "stratified", one_round=True), strata),
    ]
    rows = []
    for what, model, aim in grids + others:
        off = np.abs(model.coefficients_ - aim.coefficients_) / aim.standard_errors_
        rows.append({"what": what, "errors off": float(off.mean()), "largest": float(off.max())})
    return rows


def fitted(sites: dict[str, mc.data.SurvivalData], times: str, policy: Any = None, **options: Any) -> FedCox:
    """Return one fit, by default where policies ask for nothing."""
    policy = policy or mc.Policy(**OPEN)
    with mc.Federation.in_process(sites, policy=policy, listener=Silence()) as federation:
        return FedCox(times, **options).fit(federation)


def learner() -> list[dict[str, Any]]:
    """Fit one site's weighted patients, beside scikit-survival where it is installed."""
    data = next(iter(simulate(910 * N_SITES, 55, days=True).values()))
    n_columns = data.X.shape[1]
    grid = np.unique(np.quantile(data.time, np.arange(1, 65) / 64))
    ends = np.zeros(n_columns + 1, dtype=np.int64)
    centre, spread = data.X.mean(axis=0), data.X.std(axis=0)
    agreed = Agreed(data.columns, "", 1, False, 910.0, 1.0, grid, centre, spread, np.zeros(0), ends)
    patients, weights = Patients(data, agreed, 0), np.random.default_rng(0).exponential(size=len(data))
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
    with mc.Federation.in_process(sites, policy=mc.Policy(**OPEN), secure_sum=secure, listener=Silence()) as federation:
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
        "rounds": model.n_rounds_,
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
    return "masked" if secure else "in clear"


SECTIONS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "support": support,
    "million": million,
    "near": near,
    "learner": learner,
}


if __name__ == "__main__":
    main()
