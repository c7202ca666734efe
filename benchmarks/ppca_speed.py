"""How fast Fed-mv-PPCA is, beside scikit-learn and mofapy2 in the same run.

Sections: peers, iterations, rounds, stream. Without arguments all are run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measuring import median_seconds, pin_threads, show, write_json
from sklearn.decomposition import PCA, FactorAnalysis

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.datasets import load_handwritten
from multicentre.errors import DataError
from multicentre.multiview.ppca.maths import start
from multicentre.multiview.ppca.maths.model import Layout
from multicentre.multiview.ppca.maths.moments import PatternMoments, reduce_chunks, reduce_rows
from multicentre.multiview.ppca.maths.predict import reconstruct
from multicentre_papers.published import FedMvPPCAAsPublished
from multicentre_papers.published.ppca.em import fit_local, random_start

HERE = Path(__file__).parent
N_PATIENTS, N_COMPONENTS = 1400, 10
FEDERATED, BARE = "multicentre, federation of one site", "multicentre, the mathematics alone"
DIGIT_SIZES = {"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6}
PAPER_SIZES = {"clinical": 7, "mri": 41, "fdg": 41, "amyloid": 41}
PAPER_PATIENTS, PAPER_CENTRES, PAPER_COMPONENTS = 311, 6, 6
MOFA_ITERATIONS = 100
SLOW_S = 10.0  # what takes longer is run once
N_ITERATIONS = 30
# Ten times looser than the default; the variance explained stays the same to four digits.
TOLERANCE = 1e-5
BLOCK_ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: all")
    parser.add_argument("--runs", type=int, default=3, help="runs whose median is reported")
    parser.add_argument("--rows", type=int, default=1_000_000, help="patients of the section stream")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    pin_threads()
    if given.inner:
        print(json.dumps(stream_rows(given.rows)))
        return
    results = {name: SECTIONS[name](given) for name in given.sections or SECTIONS}
    write_json(given.json, results)


def compare_with_peers(given: argparse.Namespace) -> dict[str, Any]:
    """The pooled fit of 1400 x 649 with q = 10, and that of others."""
    X, source = digits()
    layout = Layout(tuple(DIGIT_SIZES), tuple(DIGIT_SIZES.values()))
    data = MultiViewData({view: X[:, layout.columns(view)] for view in DIGIT_SIZES})
    fits: dict[str, Callable[[], np.ndarray]] = {
        FEDERATED: lambda: rebuild_federated(data, layout),
        BARE: lambda: rebuild_bare(X, layout),
        "scikit-learn PCA, full": lambda: rebuild_sklearn(PCA(N_COMPONENTS, svd_solver="full"), X),
        "scikit-learn PCA, randomised": lambda: rebuild_sklearn(
            PCA(N_COMPONENTS, svd_solver="randomized", random_state=0), X
        ),
        "scikit-learn FactorAnalysis, lapack": lambda: rebuild_sklearn(
            FactorAnalysis(N_COMPONENTS, svd_method="lapack"), X
        ),
        "scikit-learn FactorAnalysis, randomised": lambda: rebuild_sklearn(FactorAnalysis(N_COMPONENTS), X),
    }
    seconds, explained = {}, {}
    for name, run in fits.items():
        began = time.perf_counter()
        explained[name] = 1 - ((X - run()) ** 2).sum() / (X**2).sum()
        first = time.perf_counter() - began
        seconds[name] = first if first > SLOW_S else median_seconds(run, given.runs)
    mofa = fit_mofa(X, layout, given.runs)
    if mofa:
        name = f"mofapy2, fast criterion ({mofa['iterations']} iterations)"
        seconds[name], explained[name] = mofa["seconds"], mofa["explained"]
    ours = seconds[FEDERATED]
    show(
        f"Pooled fit and reconstruction, {N_PATIENTS} x {X.shape[1]}, q = {N_COMPONENTS}, {source}",
        ["fit", "seconds", "times the federation", "times the mathematics", "variance explained"],
        [
            [name, f"{s:.3f}", f"{s / ours:.1f}", f"{s / seconds[BARE]:.1f}", f"{explained[name]:.4f}"]
            for name, s in seconds.items()
        ],
    )
    return {"data": source, "seconds": seconds, "variance_explained": explained}


def digits() -> tuple[np.ndarray, str]:
    """Return standardised rows with six views, real where they are at hand."""
    try:
        labelled = load_handwritten()
    except DataError:
        X, source = simulate(np.random.default_rng(0), N_PATIENTS, sum(DIGIT_SIZES.values()), N_COMPONENTS), "simulated"
    else:
        chosen = np.random.default_rng(0).permutation(len(labelled))[:N_PATIENTS]
        X, source = labelled.data.stacked(list(DIGIT_SIZES))[chosen], "handwritten digits"
    return (X - X.mean(axis=0)) / X.std(axis=0), source


def simulate(random: np.random.Generator, n: int, d: int, q: int) -> np.ndarray:
    """Draw rows of q latents and unit noise."""
    return random.standard_normal((n, q)) @ random.standard_normal((q, d)) + random.standard_normal((n, d))


def rebuild_federated(data: MultiViewData, layout: Layout) -> np.ndarray:
    federation = mc.Federation.in_process({"one": data})
    model = mc.multiview.FedMvPPCA(N_COMPONENTS, small_views=True, tol=TOLERANCE).fit(federation)
    return np.hstack([model.reconstruct(data)[view] for view in layout.names])


def rebuild_bare(X: np.ndarray, layout: Layout) -> np.ndarray:
    patterns = reduce_rows(X, layout)
    return reconstruct(X, fit_local(patterns, layout, start_of(patterns, layout), n_iterations=N_ITERATIONS).parameters)


def start_of(patterns: list[PatternMoments], layout: Layout, q: int = N_COMPONENTS) -> Any:
    sums = start.sum_first_moments(patterns, layout)
    variances = np.add.reduceat(sums.variances, layout.starts) / np.asarray(layout.sizes) / patterns[0].moments.n
    return random_start(layout, q, variances, np.random.default_rng(0))


def rebuild_sklearn(model: Any, X: np.ndarray) -> np.ndarray:
    return model.fit_transform(X) @ model.components_ + model.mean_


def fit_mofa(X: np.ndarray, layout: Layout, n_runs: int) -> dict[str, float] | None:
    """Fit with mofapy2 in a process of its own; None where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, **{view: X[:, layout.columns(view)] for view in layout.names})
        command = [sys.executable, HERE / "mofa_fit.py", rows, str(N_COMPONENTS), str(MOFA_ITERATIONS), str(n_runs)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        print(f"mofapy2 is left out: {ended.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def time_iterations(given: argparse.Namespace) -> dict[str, Any]:
    """One local iteration once the rows are reduced, over the number of patients."""
    layout = Layout(tuple(PAPER_SIZES), tuple(PAPER_SIZES.values()))
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for n in (1_000, 10_000, 100_000):
        X = simulate(random, n, layout.n_features, PAPER_COMPONENTS)
        patterns = reduce_rows(X, layout)
        first = start_of(patterns, layout, PAPER_COMPONENTS)

        def iterate(patterns: list[PatternMoments] = patterns, first: Any = first) -> None:
            fit_local(patterns, layout, first, n_iterations=N_ITERATIONS, tolerance=-np.inf)

        found[str(n)] = {
            "reduce_s": median_seconds(lambda X=X: reduce_rows(X, layout), given.runs),
            "iteration_s": median_seconds(iterate, max(given.runs, 5)) / N_ITERATIONS,
        }
    show(
        f"A local iteration, {layout.n_features} features, q = {PAPER_COMPONENTS}",
        ["patients", "rows to moments (ms, once)", "iteration (us)", "times the first"],
        [
            [
                n,
                f"{1e3 * one['reduce_s']:.1f}",
                f"{1e6 * one['iteration_s']:.0f}",
                f"{one['iteration_s'] / found['1000']['iteration_s']:.2f}",
            ]
            for n, one in found.items()
        ],
    )
    return found


def time_rounds(given: argparse.Namespace) -> dict[str, Any]:
    """The paper's sizes and budget: 311 patients over 6 centres, 130 features, 100 rounds of 15 iterations."""
    layout = Layout(tuple(PAPER_SIZES), tuple(PAPER_SIZES.values()))
    X = simulate(np.random.default_rng(0), PAPER_PATIENTS, layout.n_features, PAPER_COMPONENTS)
    centres = {
        f"centre-{c + 1}": MultiViewData({view: X[c::PAPER_CENTRES, layout.columns(view)] for view in layout.names})
        for c in range(PAPER_CENTRES)
    }
    found = {}
    budget: dict[str, Any] = {"max_iter": 100, "n_local_iter": 15}
    models: dict[str, mc.multiview.FedMvPPCA] = {
        "paper": FedMvPPCAAsPublished(PAPER_COMPONENTS, **budget),
        "invariant": mc.multiview.FedMvPPCA(PAPER_COMPONENTS, **budget),
        "hierarchical": mc.multiview.FedMvPPCA(PAPER_COMPONENTS, method="hierarchical", **budget),
    }
    for method, model in models.items():

        def fit(model: Any = model) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(mc.Federation.in_process(centres))

        found[method] = {"seconds": median_seconds(fit, given.runs), "rounds": model.n_iter_}
    show(
        f"{PAPER_PATIENTS} patients over {PAPER_CENTRES} centres, views of 7, 41, 41 and 41, q = {PAPER_COMPONENTS}, "
        "at most 100 rounds of 15 local iterations in each loop",
        ["method", "rounds", "seconds"],
        [[method, str(one["rounds"]), f"{one['seconds']:.2f}"] for method, one in found.items()],
    )
    return found


def time_stream(given: argparse.Namespace) -> dict[str, Any]:
    """Many patients in one pass, in a process of its own so that its memory can be told."""
    command = [sys.executable, __file__, "--inner", "--rows", str(given.rows)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    show(
        f"{given.rows:,} patients x {found['features']} features in one pass, blocks of {BLOCK_ROWS:,}",
        [
            "rows to moments (s)",
            "rows a second",
            f"then {N_ITERATIONS} iterations (s)",
            "peak memory (MB)",
            "before (MB)",
        ],
        [
            [
                f"{found['reduce_s']:.2f}",
                f"{found['rows_per_s']:,.0f}",
                f"{found['fit_s']:.3f}",
                f"{found['peak_mb']:.0f}",
                f"{found['before_mb']:.0f}",
            ]
        ],
    )
    return found


def stream_rows(n_rows: int) -> dict[str, float]:
    """Reduce rows that are made block by block, and fit."""
    layout = Layout(tuple(PAPER_SIZES), tuple(PAPER_SIZES.values()))
    base = simulate(np.random.default_rng(0), BLOCK_ROWS, layout.n_features, PAPER_COMPONENTS)
    before = peak_megabytes()
    began = time.perf_counter()
    patterns = reduce_chunks(blocks(base, n_rows), layout)
    reduced = time.perf_counter()
    fit_local(patterns, layout, start_of(patterns, layout, PAPER_COMPONENTS), n_iterations=N_ITERATIONS)
    ended = time.perf_counter()
    if patterns[0].moments.n != n_rows:
        raise SystemExit("rows were lost")
    return {
        "features": layout.n_features,
        "reduce_s": reduced - began,
        "rows_per_s": n_rows / (reduced - began),
        "fit_s": ended - reduced,
        "peak_mb": peak_megabytes(),
        "before_mb": before,
    }


def blocks(base: np.ndarray, n_rows: int) -> Iterator[np.ndarray]:
    """Yield blocks that differ, at next to no cost of their own."""
    for i, done in enumerate(range(0, n_rows, len(base))):
        yield base[: n_rows - done] + 1e-3 * i


def peak_megabytes() -> float:
    """Return the most memory that this process has held; not-a-number where the system does not say."""
    status = Path("/proc/self/status")  # getrusage would also count the process that started this one
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM")), float("nan"))


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "peers": compare_with_peers,
    "iterations": time_iterations,
    "rounds": time_rounds,
    "stream": time_stream,
}

if __name__ == "__main__":
    main()
