"""Federated XGBoost beside xgboost's hist on the pooled records: seconds, ratio, bytes a tree and site, same trees.

Both are given the same records and the same 128 bins of 10 columns; the pooled fit is that of the records' bins. Fits
are taken in turns, and the least seconds of each kind are shown. Sites run in this process: no network is counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.boosting import FedXGBClassifier
from multicentre.boosting.messages import Cuts
from multicentre.boosting.records import digitise
from multicentre.core.rounds import Listener

N_COLUMNS, N_BINS, N_SITES = 10, 128, 5
PAPER = {"max_depth": 3, "learning_rate": 0.6}
TITLES = ["what", "records", "rounds", "s", "over pooled", "kB per tree and site", "sums per tree", "largest |dp|"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    rows = [row for size in given.records for row in compare(size, given.rounds, given.repetitions)]
    show("Federated XGBoost", TITLES, [[_cell(row.get(title)) for title in TITLES] for row in rows])
    if given.json:
        write_json(given.json, {"fed_xgb": rows})


def compare(n_records: int, n_rounds: int, repetitions: int) -> list[dict[str, Any]]:
    """Return one row for the pooled fit and one for each way to take the sums."""
    X, y = simulate(n_records)
    cuts = [np.unique(np.float32(np.quantile(x, np.arange(1, N_BINS) / N_BINS))) for x in X.T]
    sizes = np.array([len(own) for own in cuts], dtype=np.int32)
    binned = digitise(X.astype(np.float32), Cuts(np.concatenate(cuts), sizes)).astype(np.float32)
    told = {"objective": "binary:logistic", "base_score": float(np.float32(y.mean())), "nthread": 1, "max_bin": 256}

    def pooled() -> Any:
        rows = xgboost.DMatrix(binned, label=y)
        return xgboost.train({**told, **PAPER}, rows, n_rounds).predict(rows)

    lists = [own.tolist() for own in cuts]
    ways: dict[str, Callable[[], Any]] = {
        "pooled": pooled,
        "federated, unmasked": lambda: fit(X, y, n_rounds, lists, secure=False),
        "federated, masked": lambda: fit(X, y, n_rounds, lists, secure=True),
        "federated, masked, cuts found": lambda: fit(X, y, n_rounds, None, secure=True),
    }
    fit(X[:1000], y[:1000], 2, lists, secure=False)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = {}
    for _ in range(repetitions):
        for name, run in ways.items():
            started = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - started)
    rows = []
    for name, found in results.items():
        row = {"what": name, "records": n_records, "rounds": n_rounds, "s": min(seconds[name])}
        row["over pooled"] = row["s"] / min(seconds["pooled"])
        if name != "pooled":
            row["kB per tree and site"] = found.traffic_.bytes_from_sites["sum_gradients"] / n_rounds / N_SITES / 1000
            row["sums per tree"] = found.traffic_.calls["sum_gradients"] / n_rounds
        if name in ("federated, unmasked", "federated, masked"):
            row["largest |dp|"] = float(np.abs(found.predict_proba(X)[:, 1] - results["pooled"]).max())
        rows.append(row)
    return rows


def fit(X: Any, y: Any, n_rounds: int, cuts: list[list[float]] | None, *, secure: bool) -> FedXGBClassifier:
    """Return one fit over the sites."""
    data = mc.data.TableData(X, y)
    sites = {f"site-{i}": data.take(np.arange(i, len(y), N_SITES)) for i in range(N_SITES)}
    exact = mc.Policy(min_patients=0)
    with mc.Federation.in_process(sites, policy=exact, secure_sum=secure, listener=Listener()) as federation:
        return FedXGBClassifier(n_rounds, cuts=cuts, max_bins=N_BINS, **PAPER).fit(federation)


def simulate(n_records: int) -> tuple[Any, Any]:
    """Return covariates and an outcome that depends on some of them, alone and together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_records, N_COLUMNS))
    log_odds = X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 3] > 0) * X[:, 4] ** 2 - 1
    return X, (rng.random(n_records) < 1 / (1 + np.exp(-log_odds))).astype(int)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
