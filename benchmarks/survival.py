"""Seconds and memory of the federated survival methods, each beside the same learners without a federation.

Sections: support (SUPPORT at 8 sites: boosting, hazards, forest, Cox), predict (curves and risks of its patients),
million (1,000,000 patients, 50 columns, 8 sites, every fit in a process of its own), compile (seconds that the kernels'
examples take with an empty cache of compiled code, by module). Without arguments the first two are run.

"times trees" is the wall-clock time over that of growing 400 trees (50 on each site's patients), taken right before in
the same run: it moves less with the machine and its load than seconds do. Where SUPPORT is not at hand (see
``multicentre datasets``), patients of the same number and columns are simulated, and the title says so.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import machine_facts, pin_threads, show, write_json

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.errors import MulticentreError
from multicentre.survival.agreement.messages import Agreed, Patients
from multicentre.survival.learners.tree import TreeSettings, fit_forest
from multicentre_papers.published import FedSurvBoostAsPublished

N_SITES, N_TREES = 8, 50
MILLION, COLUMNS = 1_000_000, 50
OPEN = mc.Policy(min_patients=0)
Make = Callable[[], Any]
Sites = dict[str, mc.data.SurvivalData]

FITS: dict[str, tuple[Make, bool, float | None]] = {
    "FedSurvBoost, 50 rounds of trees, as published": (
        lambda: FedSurvBoostAsPublished("tree", n_estimators=50),
        False,
        3.0,
    ),
    "the same, masked": (lambda: FedSurvBoostAsPublished("tree", n_estimators=50), True, None),
    "FedSurvBoost, 50 rounds of trees, without recalibration": (
        lambda: mc.survival.FedSurvBoost("tree", n_estimators=50, recalibrate=False),
        False,
        None,
    ),
    "FedSurvBoost, 50 rounds of trees, default (four passes)": (
        lambda: mc.survival.FedSurvBoost("tree", n_estimators=50),
        False,
        None,
    ),
    "FedHazardBoost, 200 trees of depth 4": (
        lambda: mc.survival.FedHazardBoost(200, max_depth=4, early_stopping=False),
        False,
        10.0,
    ),
    "FedHazardBoost, masked": (lambda: mc.survival.FedHazardBoost(200, max_depth=4, early_stopping=False), True, None),
    "FedHazardBoost, default (200 trees of depth 2)": (lambda: mc.survival.FedHazardBoost(), False, None),
    "FedHazardBoost, default with early stopping (four passes)": (
        lambda: mc.survival.FedHazardBoost(early_stopping=True),
        False,
        None,
    ),
    "FedRSF, 100 trees": (lambda: mc.survival.FedRSF(100), False, None),
    "FedRSF, masked": (lambda: mc.survival.FedRSF(100), True, None),
    "FedCox, stratified": (lambda: mc.survival.FedCox(alpha=1.0), False, 5.0),
    "FedCox, on a grid": (lambda: mc.survival.FedCox("grid", alpha=1.0), False, 5.0),
}
LARGE: dict[str, Make] = {
    "FedHazardBoost, 50 trees of depth 3": lambda: mc.survival.FedHazardBoost(50, max_depth=3, early_stopping=False),
    "FedCox, stratified": lambda: mc.survival.FedCox(alpha=1.0),
    "FedCox, on a grid": lambda: mc.survival.FedCox("grid", alpha=1.0),
}

KERNELS = (
    "descent",
    "hazard_histogram",
    "hazard_rows",
    "logrank",
    "logrank_sums",
    "logrank_tree",
    "pairs",
    "patient_draws",
)
EXAMPLES = """
import doctest, importlib, time
import numba
began = time.process_time()
doctest.testmod(importlib.import_module("multicentre.survival.kernels.{name}"))
print(time.process_time() - began)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: support and predict")
    parser.add_argument("--runs", type=int, default=3, help="runs of which median and spread are told")
    parser.add_argument("--large", choices=[*LARGE], help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    if given.large:
        print(json.dumps(fit_large(given.large)))
        return
    results = {name: SECTIONS[name](given.runs) for name in given.sections or ("support", "predict")}
    write_json(given.json, results)


def support(n_runs: int) -> list[dict[str, Any]]:
    """Time every fit on SUPPORT."""
    data, name = load_support()
    sites = mc.datasets.split_iid(data, N_SITES, random_state=0)
    rows = [time_fit(what, sites, n_runs) for what in FITS]
    cells = [
        [
            row["what"],
            f"{row['median']:.2f}",
            f"{row['least']:.2f}-{row['most']:.2f}",
            f"{row['cpu']:.2f}",
            f"{row['times trees']:.1f}",
            "" if row["aim"] is None else f"{row['aim']:g}",
            f"{row['MiB sent']:.1f}",
        ]
        for row in rows
    ]
    load = machine_facts()["load"]
    show(
        f"{name}, {len(data):,} patients, {len(data.columns)} columns, {N_SITES} sites; load {load:.1f}",
        ["fit", "s", "spread", "cpu s", "times trees", "aim s", "MiB from a site"],
        cells,
    )
    return rows


def time_fit(what: str, sites: Sites, n_runs: int) -> dict[str, Any]:
    """Return seconds of some fits after a first that is not counted, each beside trees grown at the same time."""
    make, secure, aim = FITS[what]
    fitted(make, sites, secure)
    seconds, cpu, ratios, sent = [], [], [], 0.0
    for _ in range(n_runs):
        alone = timed(lambda: grow_alone(sites))[0]
        wall, worked, federation = timed(lambda: fitted(make, sites, secure)[1])
        seconds.append(wall)
        cpu.append(worked)
        ratios.append(wall / alone)
        sent = sum(federation.traffic.bytes_from_sites.values()) / N_SITES / 2**20
    print(f"{what}: {np.median(seconds):.2f} s, {np.median(ratios):.1f} times trees", file=sys.stderr, flush=True)
    return {
        "what": what,
        "median": float(np.median(seconds)),
        "least": min(seconds),
        "most": max(seconds),
        "cpu": float(np.median(cpu)),
        "times trees": float(np.median(ratios)),
        "aim": aim,
        "MiB sent": sent,
    }


def fitted(make: Make, sites: Sites, secure: bool) -> tuple[Any, mc.Federation]:
    """Return a fit and its federation."""
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure, listener=Listener()) as federation:
        return make().fit(federation), federation


def grow_alone(sites: Sites) -> None:
    """Grow trees on each site's patients, binned once: the yardstick."""
    for data in sites.values():
        settings, rng = TreeSettings(), np.random.default_rng(0)
        fit_forest(Patients(data, _agreed(data)), N_TREES, settings, rng)


def _agreed(data: mc.data.SurvivalData) -> Agreed:
    centre, spread = np.nanmean(data.X, axis=0), np.nanstd(data.X, axis=0)
    filled = np.where(np.isnan(data.X), centre, data.X)
    shares = np.arange(1, 64) / 64
    edges = [np.unique(np.quantile(column, shares)) if len(np.unique(column)) > 2 else [0.5] for column in filled.T]
    first = np.cumsum([0, *map(len, edges)])
    grid = np.unique(np.quantile(data.time[data.event == 1], shares))
    n = float(len(data))
    return Agreed(data.columns, "", 1, n, n, grid, centre, spread, np.concatenate(edges), first)


def predict(n_runs: int) -> list[dict[str, Any]]:
    """Time risks and curves of all of SUPPORT's patients, from four fits."""
    data, name = load_support()
    sites = mc.datasets.split_iid(data, N_SITES, random_state=0)
    rows = []
    for what in (
        "FedSurvBoost, 50 rounds of trees, as published",
        "FedHazardBoost, 200 trees of depth 4",
        "FedRSF, 100 trees",
        "FedCox, on a grid",
    ):
        model = fitted(FITS[what][0], sites, secure=False)[0]
        predictions: dict[str, Callable[[], Any]] = {
            "risks": lambda model=model: model.predict(data),
            "curves": lambda model=model: model.predict_survival_function(data, return_array=True),
            "assess": lambda model=model: model.assess(data),
        }
        for kind, predict in predictions.items():
            predict()
            seconds = [timed(predict)[0] for _ in range(n_runs)]
            rows.append({"what": what, "kind": kind, "median": float(np.median(seconds)), "least": min(seconds)})
    cells = [
        [row["what"], row["kind"], f"{1e3 * row['median']:.1f}", f"{1e6 * row['median'] / len(data):.2f}"]
        for row in rows
    ]
    show(f"Predictions for {name}'s {len(data):,} patients", ["fit", "what", "ms", "us a patient"], cells)
    return rows


def million(n_runs: int) -> list[dict[str, Any]]:
    """Fit a million patients, every method in a process of its own; run once."""
    rows = []
    for what in LARGE:
        command = [sys.executable, str(Path(__file__)), "--large", what]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout))
        print(done.stdout, end="", file=sys.stderr, flush=True)
    cells = [
        [
            row["what"],
            f"{row['s']:.1f}",
            f"{row['cpu s']:.1f}",
            f"{row['GiB data']:.2f}",
            f"{row['GiB before']:.2f}",
            f"{row['GiB peak']:.2f}",
            f"{row['GiB more']:.2f}",
        ]
        for row in rows
    ]
    show(
        f"{MILLION:,} patients, {COLUMNS} columns, {N_SITES} sites",
        ["fit", "s", "cpu s", "GiB of data", "GiB held before", "GiB at the peak", "GiB more"],
        cells,
    )
    return rows


def fit_large(what: str) -> dict[str, Any]:
    """Return seconds and memory of one fit; kernels are compiled and libraries loaded before."""
    fitted(LARGE[what], draw_sites(N_SITES * 400), secure=False)
    sites = draw_sites(MILLION)
    of_data = sum(data.X.nbytes + data.time.nbytes + data.event.nbytes for data in sites.values())
    before = _gib(resident=True)
    wall, worked, _ = timed(lambda: fitted(LARGE[what], sites, secure=False))
    peak = _gib(resident=False)
    return {
        "what": what,
        "s": wall,
        "cpu s": worked,
        "GiB data": of_data / 2**30,
        "GiB before": before,
        "GiB peak": peak,
        "GiB more": peak - before,
    }


def compile_kernels(n_runs: int) -> list[dict[str, Any]]:
    """Time the examples of every module of kernels where nothing was compiled before; run once."""
    rows = []
    for name in KERNELS:
        with tempfile.TemporaryDirectory() as empty:
            command = [sys.executable, "-c", EXAMPLES.format(name=name)]
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ | {"NUMBA_CACHE_DIR": empty}
            )
        rows.append({"module": name, "cpu s": float(done.stdout)})
    cells = [[row["module"], f"{row['cpu s']:.1f}"] for row in rows]
    show("Kernels compiled into an empty cache", ["module", "cpu s"], cells)
    return rows


def draw_sites(n_patients: int) -> Sites:
    """Return simulated sites, drawn one after the other so that drawing does not set the peak of memory."""
    size = n_patients // N_SITES
    return {f"site-{k}": mc.datasets.simulate_survival(size, COLUMNS, random_state=k) for k in range(N_SITES)}


def _gib(*, resident: bool) -> float:
    """Return what the process holds, or held at most (the kernel's own account)."""
    if resident:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30


def load_support() -> tuple[mc.data.SurvivalData, str]:
    """Return SUPPORT without the columns that hold its outcome, or a simulated stand-in of its size."""
    try:
        return mc.datasets.load_support2(), "SUPPORT"
    except MulticentreError:
        return mc.datasets.simulate_survival(9105, 46, nonlinear=True), "Simulated like SUPPORT"


def timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return seconds of the clock and of the processor, and what was run."""
    began, worked = time.perf_counter(), time.process_time()
    found = run()
    return time.perf_counter() - began, time.process_time() - worked, found


SECTIONS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "support": support,
    "predict": predict,
    "million": million,
    "compile": compile_kernels,
}


if __name__ == "__main__":
    main()
