"""Seconds and nearness of FedGLM and of statsmodels on the pooled rows, in one run; linear and logistic regression.

By default 1,000,000 patients with 50 columns at 8 sites. Needs statsmodels. Memory of the rows is 381 MiB, and both
fits hold copies. The sites run one after another in this process, so that the seconds are those of all sites together.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from measuring import machine_facts, pin_threads, show, write_json

import multicentre as mc

N_SITES, N_COLUMNS = 8, 50
OPEN = mc.Policy(min_patients=0)
TITLES = ["fit", "FedGLM s", "statsmodels s", "ratio", "calls", "largest difference in standard errors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="patients of all sites (default: 1000000)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    pin_threads()
    X, outcomes = simulate(2_000)  # modules are imported and caches filled before the clock starts
    for family, outcome in outcomes.items():
        compare(family, X, outcome, secure=True)
    X, outcomes = simulate(options.rows)
    rows = [
        compare(family, X, outcomes[family], secure=secure)
        for family in ("gaussian", "binomial")
        for secure in (False, True)
    ]
    title = f"FedGLM and statsmodels {version('statsmodels')}, {options.rows} x {N_COLUMNS}, {N_SITES} sites"
    show(title, TITLES, [[_cell(row[heading]) for heading in TITLES] for row in rows])
    if options.json:
        write_json(options.json, {"regression": rows, "rows": options.rows, "machine": machine_facts()})


def simulate(n_rows: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return correlated columns, a number and a class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, 1:] += 0.5 * X[:, :1]
    predictor = X @ rng.normal(scale=0.15, size=N_COLUMNS)
    died = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(1.0 - predictor))).astype(int)
    return X, {"gaussian": 5.0 + predictor + rng.normal(size=n_rows), "binomial": died}


def compare(family: str, X: np.ndarray, y: np.ndarray, *, secure: bool) -> dict[str, Any]:
    """Fit the sites and the pooled rows one after the other."""
    import statsmodels.api as sm

    kind = {"outcome": "number"} if family == "gaussian" else {}
    sites = {
        f"site-{i}": mc.data.TableData(X[i::N_SITES], y[i::N_SITES], **kind)  # type: ignore[arg-type]
        for i in range(N_SITES)
    }
    distribution = sm.families.Gaussian() if family == "gaussian" else sm.families.Binomial()
    federated, seconds = timed(
        lambda: mc.regression.FedGLM(family).fit(  # type: ignore[arg-type]
            mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)
        )
    )
    pooled, pooled_seconds = timed(lambda: sm.GLM(y, sm.add_constant(X), family=distribution).fit())
    values = np.concatenate([[federated.intercept_], federated.coef_])
    return {
        "fit": f"{family}, {'masked' if secure else 'unmasked'}",
        "FedGLM s": seconds,
        "statsmodels s": pooled_seconds,
        "ratio": seconds / pooled_seconds,
        "calls": sum(federated.session.traffic.calls.values()),
        "largest difference in standard errors": float(np.max(np.abs(values - pooled.params) / pooled.bse)),
    }


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = run()
    return result, time.perf_counter() - began


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
