"""Seconds of a survival tree and of a forest beside scikit-survival, which runs in a process of its own.

Leaves of 15 patients or more; ours bin columns and times first, and that counts. scikit-survival is timed on the times
as they are and, for fairness, on times already rounded up to our grid. Its forest is timed with fewer trees, and the
seconds are scaled to 100. Times are those of the processor, one thread, least of some repetitions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed, Patients
from multicentre.survival.learners.tree import TreeSettings, fit_forest, fit_trees

N_TIMES, N_BINS, N_TREES = 64, 64, 100
SIZES = (911, 7284)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", default=sys.executable, help="a Python that has scikit-survival")
    parser.add_argument("--runs", type=int, default=3, help="repetitions of which the least is told")
    parser.add_argument("--peer-trees", type=int, default=10, help="trees of scikit-survival's forest, scaled to 100")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    results, rows = {}, []
    for n in SIZES:
        X, times, events = draw_patients(n)
        ours = time_ours(X, times, events, given.runs)
        for name, recorded in (("as recorded", times), ("on the grid", on_grid(times, grid_of(times, events)))):
            theirs = time_peer(given.oracle, X, recorded, events, given.runs, given.peer_trees)
            results[f"{n}, {name}"] = {"ours": ours, "theirs": theirs}
            rows += [
                [f"{n:,}", name, what, f"{ours[what]:.4f}", f"{theirs[what]:.3f}", f"{theirs[what] / ours[what]:.0f}"]
                for what in ours
            ]
    show(
        "Trees on 55 columns: seconds, ours and scikit-survival's",
        ["patients", "its times", "what", "ours", "theirs", "ratio"],
        rows,
    )
    write_json(given.json, results)


def draw_patients(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 15 normal and 40 binary columns, times in whole days, and events."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(n, 15)), (rng.random((n, 40)) < rng.uniform(0.05, 0.5, 40)).astype(float)])
    risk = 0.7 * X[:, 0] + 0.3 * X[:, 1] ** 2 + 0.8 * X[:, 15]
    event_time, censoring = rng.exponential(400.0 * np.exp(-risk)), rng.exponential(600.0, n)
    return X, np.ceil(np.minimum(event_time, censoring)), event_time <= censoring


def grid_of(times: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Return the 64 quantiles of the times of events."""
    return np.unique(np.quantile(times[events], np.linspace(0, 1, N_TIMES + 1)[1:]))


def on_grid(times: np.ndarray, grid: np.ndarray) -> np.ndarray:
    return np.append(grid, grid[-1] + 1.0)[np.searchsorted(grid, times)]


def time_ours(X: np.ndarray, times: np.ndarray, events: np.ndarray, n_runs: int) -> dict[str, float]:
    data = SurvivalData(X, times, events)
    shares = np.arange(1, N_BINS) / N_BINS
    edges = [np.unique(np.quantile(column, shares)) if len(np.unique(column)) > 2 else [0.5] for column in X.T]
    first = np.cumsum([0, *map(len, edges)])
    grid = grid_of(times, events)
    agreed = Agreed(
        data.columns, "", 1, float(len(X)), float(events.sum()), grid, X.mean(axis=0), X.std(axis=0),
        np.concatenate(edges), first,
    )  # fmt: skip

    def grow(columns: str | None, n_estimators: int) -> None:
        patients, settings = Patients(data, agreed), TreeSettings(max_features=columns)
        if n_estimators == 1:
            fit_trees(patients, np.ones(len(X)), settings)
        else:
            fit_forest(patients, n_estimators, settings, np.random.default_rng(0))

    grow("sqrt", 2)
    return {
        "tree, sqrt(d) columns": least_seconds(lambda: grow("sqrt", 1), n_runs),
        "tree, all columns": least_seconds(lambda: grow(None, 1), n_runs),
        "forest of 100": least_seconds(lambda: grow("sqrt", N_TREES), n_runs),
    }


def time_peer(
    python: str, X: np.ndarray, times: np.ndarray, events: np.ndarray, n_runs: int, n_estimators: int
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "patients.npz"
        np.savez(path, X=X, times=times, events=events)
        script = Path(__file__).with_name("survival_trees_peer.py")
        done = subprocess.run(
            [python, str(script), str(path), str(n_runs), str(n_estimators)], check=True, capture_output=True, text=True
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def least_seconds(run: Callable[[], Any], n_runs: int) -> float:
    """Return the least time of the processor of some runs."""
    seconds = []
    for _ in range(n_runs):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return min(seconds)


if __name__ == "__main__":
    main()
