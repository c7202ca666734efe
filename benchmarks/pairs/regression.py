"""Regression beside statsmodels on the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from pairing import Pair, Pairs, Way

import multicentre as mc
from pairs.sites import N_SITES, fit

N_COLUMNS = 20


def pairs(quick: bool) -> Pairs:
    """Yield a linear, a logistic and a Poisson regression."""
    n = 1_000 if quick else 100_000
    X, outcomes = simulate(n)
    for family, y in outcomes.items():
        yield generalised(family, X, y)


def simulate(n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return correlated columns, and a number, a class and a count."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, N_COLUMNS))
    X[:, 1:] += 0.5 * X[:, :1]
    predictor = X @ generator.normal(scale=0.15, size=N_COLUMNS)
    return X, {
        "gaussian": 5.0 + predictor + generator.normal(size=n),
        "binomial": (generator.random(n) < 1.0 / (1.0 + np.exp(1.0 - predictor))).astype(int),
        "poisson": generator.poisson(np.exp(0.5 * predictor)).astype(float),
    }


def generalised(family: str, X: np.ndarray, y: np.ndarray) -> Pair:
    """Pair a generalised linear model with its default link."""
    kind: Any = {} if family == "binomial" else {"outcome": "number"}
    data = [mc.data.TableData(X[i::N_SITES], y[i::N_SITES], **kind) for i in range(N_SITES)]
    sites = {f"site-{i}": part for i, part in enumerate(data)}

    def pooled() -> Any:
        import statsmodels.api as sm

        families = {
            "gaussian": sm.families.Gaussian,
            "binomial": sm.families.Binomial,
            "poisson": sm.families.Poisson,
        }
        return sm.GLM(y, sm.add_constant(X), family=families[family]()).fit()

    def ours(*, masked: bool) -> Any:
        return fit(mc.regression.FedGLM(family), sites, masked=masked)  # type: ignore[arg-type]

    def compare(ours: Any, peer: Any) -> dict[str, float]:
        values = np.concatenate([[ours.intercept_], ours.coef_])
        return {"largest difference, standard errors": np.max(np.abs(values - peer.params) / peer.bse)}

    names = {"gaussian": "Linear regression", "binomial": "Logistic regression", "poisson": "Poisson regression"}
    return Pair(
        names[family],
        f"{len(X):,} patients, {N_COLUMNS} columns, {N_SITES} sites",
        [Way("unmasked", lambda: ours(masked=False)), Way("masked", lambda: ours(masked=True))],
        [Way("statsmodels, GLM", pooled, "statsmodels")],
        compare,
    )
