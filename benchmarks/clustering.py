"""Accuracy of FedMSGL's preset on sets that did not choose it, and seconds and memory of a fit.

`choose` compares presets by their accuracy on data sets with known groups: for each set of the choice, the preset that
is best on all other sets is chosen, and its accuracy on the set left out is reported. `unseen` fits the default to data
sets that were not used for any choice, next to the compared methods and the plain baselines. `numbers` counts how often
the suggested number of clusters is that of the groups, by certainty. Sets that do not come with scikit-learn are read
from the folder of `--folder` (one ``NAME.mat`` per set, with views in the cells of ``X`` and groups in ``Y``, and CSV
files of R's mlbench and modeldata); absent ones are named.

`fit` times a whole fit unmasked and masked, a site's step for each view and the coordinator, and in the same run what
the printed algorithm asks for when its systems are solved as they stand: two dense systems of n unknowns and n right
sides for every view and local iteration, and a full eigendecomposition and all distances between rows of the affinity
for every central one. One iteration of each is timed and multiplied by the 5 rounds of 10 local and 10 central
iterations of the printed run. `landmarks` fits 100,000 simulated patients in a process of its own and reads its peak of
memory; what the patients themselves and the libraries take is told beside it. `threads` repeats both with one and with
two threads for linear algebra in every site. One is better: sites already share the cores of one process, and more
threads wait for one another, which costs up to three times the processor's time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clustering_numbers
import clustering_sets
import numpy as np
from measuring import PINNED, pin_threads, show, write_json
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import csr_array

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.maths.fusion import unpack_pairs
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.clustering.hypergraph import embed, hyperedge_factor, unit_rows
from multicentre.clustering.metrics import clustering_scores
from multicentre.clustering.partition import partition_rows
from multicentre.core.steps import Common
from multicentre.datasets import load_handwritten, simulate_views
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.datasets.simulated_views import split_views
from multicentre.errors import DataError
from multicentre_papers.published.fedmsgl.maths.variants import PublishedTerms

PARTS = ("fit", "landmarks", "threads", "choose", "unseen", "numbers")
DIGITS = (76, 213, 64, 240, 47, 6)
OPEN = mc.Policy(min_patients=0, relations="listed")
TERMS = messages.Settings("l2", 10.0, 0.0, 10.0, 5e-3, 50)
Seconds = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["fit", "landmarks"], help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--patients", type=int, default=100_000, help="of the fit on landmarks")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the least is told")
    parser.add_argument("--folder", type=Path, default=Path("data"), help="data sets of choose, unseen and numbers")
    parser.add_argument("--sets", nargs="*", help="only these data sets")
    parser.add_argument("--compared", type=int, default=400, help="patients up to which unseen runs all methods")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--alone", choices=("fit", "landmarks"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.alone:
        print(json.dumps(fit_digits(given.runs) if given.alone == "fit" else fit_many(given.patients)))
        return
    pin_threads()
    results: dict[str, Any] = {}
    if "fit" in given.parts:
        results["fit"] = time_fit(given.runs)
    if "landmarks" in given.parts:
        results["landmarks"] = time_landmarks(given.patients)
    if "threads" in given.parts:
        results["threads"] = time_threads(given.patients)
    if "choose" in given.parts:
        results["choose"] = clustering_sets.choose(given.folder, given.sets)
    if "unseen" in given.parts:
        results["unseen"] = clustering_sets.compare_unseen(given.folder, given.sets, given.compared)
    if "numbers" in given.parts:
        results["numbers"] = clustering_numbers.suggest_numbers(given.folder, given.sets)
    write_json(given.json, results)


def load_digits() -> LabelledMultiView:
    """Return the handwritten digits, or simulated patients of their sizes."""
    try:
        return load_handwritten()
    except DataError:
        print("(data/handwritten is not at hand: simulated)")
        return simulate_views(2000, 10, DIGITS, noise=0.6, random_state=0)


def time_fit(n_runs: int) -> Seconds:
    digits = load_digits()
    data, n = digits.data, len(digits.data)
    found = fit_digits(n_runs, digits)
    for view in data.views:
        found[f"site, {view}"] = least_of(lambda view=view: step_of_site(data, view), n_runs)[1]
    parts = [step_of_site(data, view) for view in data.views]
    found["coordinator"] = least_of(lambda: coordinate(sum(parts), n, len(parts), 10), n_runs)[1]
    found |= time_dense(data)
    dense = found["dense, whole"]
    show(
        f"FedMSGL on {n:,} patients in {len(data.views)} views: seconds of processor",
        ["what", "seconds", "dense solves take times as long"],
        [
            *[[what, f"{found[what]:.2f}", f"{dense / found[what]:.0f}"] for what in ("unmasked", "masked")],
            *[[what, f"{value:.2f}", ""] for what, value in found.items() if what not in ("unmasked", "masked")],
        ],
    )
    return found


def fit_digits(n_runs: int, digits: LabelledMultiView | None = None) -> Seconds:
    """Return seconds of the processor, and of the clock, of a whole fit."""
    digits = digits or load_digits()
    sites, found = split_views(digits), {}
    for name, secure in (("unmasked", False), ("masked", True)):
        wall, processor, model = least_of(lambda secure=secure: fit(sites, 10, secure=secure), n_runs)
        found |= {name: processor, f"{name}, clock": wall}
    found["accuracy"] = clustering_scores(np.asarray(digits.labels), model.labels_for(digits.data))["acc"]
    return found


def fit(sites: dict[str, Any], n_clusters: int, *, secure: bool = False) -> FedMSGL:
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure) as federation:
        return FedMSGL(n_clusters).fit(federation)


def step_of_site(data: mc.data.MultiViewData, view: str) -> np.ndarray:
    """Return the relations that a site with one view adds to the sum."""
    part = FedMSGLSite("lab", data.drop([other for other in data.views if other != view]))
    part.common = Common(np.arange(len(data)), len(data), frozenset({"lab"}))
    return part.relate(TERMS).relations


def coordinate(total: np.ndarray, n: int, n_views: int, n_clusters: int) -> np.ndarray:
    """Return the clusters that a coordinator makes of the sum."""
    affinity = csr_array(csr_array(unpack_pairs(total, n)) / n_views)
    vectors, _ = embed(hyperedge_factor(affinity), n_clusters)
    return partition_rows(unit_rows(vectors), n_clusters, random_state=0)


def time_dense(data: mc.data.MultiViewData) -> Seconds:
    """Return seconds of one iteration at a site and at the coordinator, and of all of them, by dense solves."""
    terms, n = PublishedTerms(), len(data)
    X = data.array(data.views[0])
    K = X @ X.T / np.einsum("ij,ij->i", X, X).mean()
    rng = np.random.default_rng(0)
    U, v = rng.random((n, n)) / n, rng.random(n)
    local = least_of(lambda: iterate_locally(K, U, v, terms), 1)[1]
    central = least_of(lambda: iterate_centrally(np.maximum(K, 0.0)), 1)[1]
    whole = terms.n_rounds * (terms.n_local * len(data.views) * local + terms.n_central * central)
    return {"dense, a view's local iteration": local, "dense, a central iteration": central, "dense, whole": whole}


def iterate_locally(K: np.ndarray, U: np.ndarray, v: np.ndarray, terms: PublishedTerms) -> np.ndarray:
    """Solve equations (13) and (19) as they stand; the first has a term that makes it unsymmetric."""
    n = len(K)
    shared = np.linalg.solve(K + terms.lambda_1 * np.eye(n) + terms.lambda_2 * v[:, None], K - K @ U)
    return cho_solve(cho_factor(K + terms.lambda_3 * np.eye(n)), K - K @ shared)


def iterate_centrally(A: np.ndarray) -> np.ndarray:
    """Find each row's nearest rows by all distances, and all eigenvectors of the graph's Laplacian."""
    squares = np.einsum("ij,ij->i", A, A)
    distances = squares[:, None] + squares - 2.0 * A @ A.T
    W = np.zeros_like(A)
    np.put_along_axis(W, np.argpartition(distances, 25, axis=1)[:, :25], 1.0, axis=1)
    W = np.maximum(W, W.T)
    scale = 1.0 / np.sqrt(W.sum(axis=1))
    return eigh(np.eye(len(A)) - scale[:, None] * W * scale)[1]


def fit_many(n: int) -> Seconds:
    """Return what a fit on landmarks takes, to be run in a process of its own."""
    drawn = simulate_views(n, 10, (40, 30, 50, 20), noise=0.6, random_state=1)
    sites, labels = split_views(drawn), np.asarray(drawn.labels)
    del drawn
    before = peak_of_memory()
    wall, processor, model = least_of(lambda: fit(sites, 10), 1)
    found = {"clock": wall, "processor": processor, "megabytes": peak_of_memory(), "of them before": before}
    return found | {"accuracy": clustering_scores(labels, model.labels_for(next(iter(sites.values()))))["acc"]}


def time_landmarks(n: int) -> Seconds:
    found = alone("landmarks", 1, n)
    rows = [[what, f"{value:,.3g}" if value < 100 else f"{value:,.0f}"] for what, value in found.items()]
    show(f"FedMSGL on {n:,} patients in 4 views, 500 landmarks, unmasked", ["what", "value"], rows)
    return found


def time_threads(n: int) -> dict[str, Seconds]:
    results, rows = {}, []
    for what in ("fit", "landmarks"):
        for n_threads in (1, 2):
            found = alone(what, n_threads, n)
            results[f"{what}, {n_threads}"] = found
            wall, processor = ("unmasked, clock", "unmasked") if what == "fit" else ("clock", "processor")
            rows.append([what, str(n_threads), f"{found[wall]:.1f}", f"{found[processor]:.1f}"])
    show("Threads for linear algebra in every site", ["part", "threads", "clock (s)", "processor (s)"], rows)
    return results


def alone(what: str, n_threads: int, n: int) -> Seconds:
    """Return what a process of its own measured."""
    command = [sys.executable, __file__, "--alone", what, "--patients", str(n), "--runs", "1"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | dict.fromkeys(PINNED, str(n_threads))
    )
    found: Seconds = json.loads(done.stdout.splitlines()[-1])
    return found


def least_of(run: Callable[[], Any], n_runs: int) -> tuple[float, float, Any]:
    """Return the least seconds of the clock and of the processor over some runs, and what the last returned."""
    walls, processors = [], []
    for _ in range(n_runs):
        began, used = time.perf_counter(), time.process_time()
        result = run()
        walls.append(time.perf_counter() - began)
        processors.append(time.process_time() - used)
    return min(walls), min(processors), result


def peak_of_memory() -> float:
    """Return the most memory that this process has held, in megabytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
