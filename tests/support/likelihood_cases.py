"""Every method that maximises a likelihood, with simulated patients of its kind of outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import multicentre as mc
from multicentre import regression, survival

COLUMNS = ("age", "bmi")
CLASSES = ("none", "mild", "severe")


@dataclass(frozen=True)
class Case:
    """A method and its kind of outcome.

    Attributes
    ----------
    make : callable
        Returns the estimator.
    outcome : str
        number, class, count, positive, classes or time.
    separable : bool
        False if the information does not depend on the coefficients.
    between : bool
        True if sites differ at random.
    """

    make: Callable[[], Any]
    outcome: str
    separable: bool = True
    between: bool = False


CASES: dict[str, Case] = {
    "linear": Case(regression.FedLinearRegression, "number", separable=False),
    "logistic": Case(regression.FedLogisticRegression, "class"),
    "probit": Case(lambda: regression.FedGLM("binomial", link="probit"), "class"),
    "poisson": Case(lambda: regression.FedGLM("poisson"), "count"),
    "gamma": Case(lambda: regression.FedGLM("gamma"), "positive", separable=False),
    "gaussian-log": Case(lambda: regression.FedGLM("gaussian", link="log"), "positive", separable=False),
    "negative-binomial": Case(lambda: regression.FedGLM("negative_binomial"), "count"),
    "multinomial": Case(regression.FedMultinomialRegression, "classes"),
    "ordinal": Case(regression.FedOrdinalRegression, "classes"),
    "linear-mixed": Case(regression.FedLinearMixedModel, "number", separable=False, between=True),
    "logistic-mixed": Case(lambda: regression.FedGLMM("binomial"), "class", between=True),
    "poisson-mixed": Case(lambda: regression.FedGLMM("poisson"), "count", between=True),
    "cox": Case(survival.FedCox, "time"),
    "cox-grid": Case(lambda: survival.FedCox("grid", n_times=20), "time"),
    "cox-exact": Case(lambda: survival.FedCox("exact"), "time"),
    "mixed-cox": Case(lambda: survival.FedMixedCox(n_times=20), "time", between=True),
}


def table_of(outcome: str, *, n: int = 900, n_sites: int = 3, seed: int = 0) -> pd.DataFrame:
    """Draw patients with covariates and an outcome; sites differ a little."""
    rng = np.random.default_rng(seed)
    site = np.arange(n) % n_sites
    frame = pd.DataFrame({"age": rng.normal(60, 10, n), "bmi": rng.normal(26, 4, n)})
    predictor = 0.5 * (frame["age"] - 60) / 10 - 0.3 * (frame["bmi"] - 26) / 4 + 0.4 * np.sin(3.0 * site)
    return with_outcome(frame, predictor.to_numpy(), outcome, rng).assign(site=site)


def with_outcome(frame: pd.DataFrame, predictor: np.ndarray, outcome: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return a table with outcomes drawn from a predictor, in the columns y, or time and event."""
    n = len(frame)
    if outcome == "time":
        time, end = rng.exponential(10 * np.exp(-predictor)), rng.exponential(25, n)
        return frame.assign(time=np.minimum(time, end), event=time <= end)
    draws = {
        "number": lambda: predictor + rng.normal(size=n),
        "class": lambda: (predictor + rng.logistic(size=n) > 0).astype(int),
        "count": lambda: rng.negative_binomial(3, 3 / (3 + np.exp(0.5 + predictor))).astype(float),
        "positive": lambda: rng.gamma(4.0, np.exp(predictor) / 4.0),
        "classes": lambda: np.digitize(predictor + rng.logistic(size=n), [-0.7, 0.7]),
    }
    return frame.assign(y=draws[outcome]())


def federate(frame: pd.DataFrame, outcome: str, *, masked: bool = True, **terms: Any) -> mc.Federation:
    """Deal patients to their sites."""
    covariates = [name for name in frame.columns if name not in ("y", "time", "event", "site")]
    sites: dict[str, Any] = {}
    for site, part in frame.groupby("site"):
        X = part[covariates].to_numpy(np.float64)
        if outcome == "time":
            data = mc.data.SurvivalData(X, part["time"].to_numpy(), part["event"].to_numpy(), columns=covariates)
        elif outcome in ("class", "classes"):
            names = CLASSES if outcome == "classes" else ("no", "yes")
            data = mc.data.TableData(X, part["y"].to_numpy(), columns=covariates, classes=names)
        else:
            data = mc.data.TableData(X, part["y"].to_numpy(), columns=covariates, outcome="number")
        sites[f"s{int(site):03d}"] = data
    terms.setdefault("policy", mc.Policy(min_patients=0, exact_times=True))
    return mc.Federation.in_process(sites, secure_sum=masked, **terms)


def column_of(model: Any, name: str, what: str = "coefficient") -> np.ndarray:
    """Return the coefficients, or another column of the table, of a covariate; several with several classes."""
    frame = model.to_frame()
    return np.ravel(frame[frame.index.get_level_values(-1) == name][what].to_numpy(np.float64))
