"""Methods of the scaling curves: simulated data of any size, and settings with few rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pairs.sites import OPEN, divide

import multicentre as mc
from multicentre.datasets.simulated_views import split_views
from multicentre_papers import baselines

Make = Callable[[int, int, int], dict[str, Any]]
# Sizes at which the other two are held while one varies.
PATIENTS, COLUMNS, SITES = 10_000, 10, 5


@dataclass(frozen=True)
class Case:
    """A method and how it is measured.

    Parameters
    ----------
    sites : callable
        Makes sites from numbers of patients, columns and sites.
    params : mapping
        Parameters; callables are called with the sites. Rounds are few and fixed, so that the number of calls does not
        depend on the sizes.
    settings : str
        What the parameters mean, for the page.
    patients_of_sites : int
        Patients of all sites together while the number of sites varies.
    most_sites : int
        Sites beyond which the method is not meant to be used.
    """

    sites: Make
    params: Mapping[str, Any] = field(default_factory=dict)
    settings: str = "defaults"
    patients_of_sites: int = 20_000
    most_sites: int = 1_000


def times(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with times to an event."""
    return divide(mc.datasets.simulate_survival(n, n_columns, 0), n_sites)


def competing(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with times to events of two causes."""
    return divide(mc.datasets.simulate_survival(n, n_columns, 0, competing=True), n_sites)


def clustered_numbers(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with a number to be predicted, whose mean differs between sites."""
    X, predictor, generator = covariates(n, n_columns)
    y = predictor + effects_of_sites(n, n_sites) + generator.normal(size=n)
    return divide(mc.data.TableData(X, y, outcome="number"), n_sites)


def clustered_classes(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with two classes, whose shares differ between sites."""
    X, predictor, generator = covariates(n, n_columns)
    y = predictor + effects_of_sites(n, n_sites) + generator.logistic(size=n) > 0
    return divide(mc.data.TableData(X, y.astype(int)), n_sites)


def effects_of_sites(n: int, n_sites: int) -> np.ndarray:
    """Return an effect of its site for each patient; patients are dealt to sites in turns."""
    return 0.5 * np.random.default_rng(1).normal(size=n_sites)[np.arange(n) % n_sites]


def numbers(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with a number to be predicted."""
    X, predictor, generator = covariates(n, n_columns)
    return divide(mc.data.TableData(X, predictor + generator.normal(size=n), outcome="number"), n_sites)


def classes(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with two classes."""
    X, predictor, generator = covariates(n, n_columns)
    return divide(mc.data.TableData(X, (predictor + generator.logistic(size=n) > 0).astype(int)), n_sites)


def three_classes(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with three ordered classes."""
    X, predictor, generator = covariates(n, n_columns)
    y = np.digitize(predictor + generator.logistic(size=n), [-1.0, 1.0])
    return divide(mc.data.TableData(X, y), n_sites)


def counts(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with a count."""
    X, predictor, generator = covariates(n, n_columns)
    y = generator.poisson(np.exp(0.5 * predictor)).astype(np.float64)
    return divide(mc.data.TableData(X, y, outcome="number"), n_sites)


def covariates(n: int, n_columns: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Return columns and a predictor of unit variance that depends on all of them."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, n_columns))
    effects = generator.normal(size=n_columns)
    return X, X @ effects / np.linalg.norm(effects), generator


def views(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with the same three views of so many columns each."""
    drawn = mc.datasets.simulate_views(n, 3, (n_columns,) * 3, random_state=0)
    return divide(drawn.data, n_sites)


def aligned(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites that hold one view each, of so many columns, of the same patients."""
    drawn = mc.datasets.simulate_views(n, 3, (n_columns,) * n_sites, random_state=0)
    return dict(split_views(drawn))


def events(n: int, n_columns: int, n_sites: int) -> dict[str, Any]:
    """Return sites with events of two kinds; each kind has ten times as many codes as there are columns."""
    sizes = {"procedure": 10 * n_columns, "diagnosis": 10 * n_columns}
    return divide(mc.datasets.simulate_planted(n, sizes, 5, 1, outcome_rate=0.3).tensor, n_sites)


def phenotypes(sites: Mapping[str, Any]) -> Any:
    """Return phenotypes of the sites."""
    fixed = {"init": "random", "n_starts": 1, "max_iter": 2, "tol": 0.0, "vocabulary": vocabulary(sites)}
    return unmasked(mc.phenotyping.DPFact(5, **fixed), sites)


def vocabulary(sites: Mapping[str, Any]) -> Any:
    """Return the codes of the sites, so that none is left out because few patients have it."""
    return next(iter(sites.values())).codes


def cox(sites: Mapping[str, Any]) -> Any:
    """Return a Cox model of the sites."""
    return unmasked(mc.survival.FedCox(), sites)


def two_models(sites: Mapping[str, Any]) -> list[Any]:
    """Return a Cox model and a small forest of the sites."""
    return [cox(sites), unmasked(baselines.FedSurF(10, n_local_estimators=10), sites)]


def unmasked(estimator: Any, sites: Mapping[str, Any]) -> Any:
    """Return an estimator fitted without masks."""
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=False) as federation:
        return estimator.fit(federation)


def logistic(sites: Mapping[str, Any]) -> Any:
    """Return a logistic regression of the sites."""
    return unmasked(mc.regression.FedLogisticRegression(), sites)


def linear(sites: Mapping[str, Any]) -> Any:
    """Return a linear regression of the sites."""
    return unmasked(mc.regression.FedLinearRegression(), sites)


TREES = "10 trees of depth 3"
CASES = {
    "aalen-johansen": Case(competing),
    "classifier-validation": Case(classes, {"model": logistic}, "a fitted logistic regression"),
    "describe": Case(classes),
    "dpfact": Case(
        events,
        {"rank": 5, "init": "random", "n_starts": 1, "max_iter": 5, "tol": 0.0, "vocabulary": vocabulary},
        "rank 5, 5 rounds",
    ),
    "fed-cox": Case(times),
    "fed-deep-surv": Case(times, {"max_iter": 2}, "2 rounds"),
    "fed-glm": Case(numbers, settings="gaussian"),
    "fed-glm-cv": Case(numbers),
    "fed-glmm": Case(clustered_classes, settings="binomial"),
    "fed-hazard-boost": Case(times, {"n_estimators": 10, "max_depth": 3, "early_stopping": False}, TREES),
    "fed-linear-mixed-model": Case(clustered_numbers),
    "fed-linear-regression": Case(numbers),
    "fed-logistic-regression": Case(classes),
    "fed-mixed-cox": Case(times),
    "fed-msgl": Case(aligned, {"n_clusters": 3}, "3 clusters; a view per site", patients_of_sites=1_000, most_sites=50),
    "fed-multinomial-regression": Case(three_classes),
    "fed-mv-ppca": Case(views, {"n_components": 2, "max_iter": 5, "tol": 0.0}, "q = 2, 5 rounds, three views"),
    "fed-ordinal-regression": Case(three_classes),
    "fed-poisson-regression": Case(counts),
    "fed-rsf": Case(times, {"n_estimators": 10}, "10 trees"),
    "fed-stack": Case(
        times, {"estimators": two_models, "weights": "brier"}, "two fitted models", patients_of_sites=50_000
    ),
    # A site needs 30 patients for a tree with a split.
    "fed-surf": Case(times, {"n_estimators": 10, "n_local_estimators": 10}, "10 trees", patients_of_sites=50_000),
    "fed-surv-boost": Case(times, {"n_estimators": 2, "recalibrate": False}, "2 rounds of trees"),
    "fed-xgb-classifier": Case(classes, {"n_estimators": 10, "max_depth": 3}, TREES),
    "fed-xgb-regressor": Case(numbers, {"n_estimators": 10, "max_depth": 3}, TREES),
    "kaplan-meier": Case(times),
    "log-rank": Case(times, {"group": "x2"}),
    "phenotype-outcome": Case(events, {"phenotypes": phenotypes, "test_size": 0.0}, "5 fitted phenotypes"),
    "regressor-validation": Case(numbers, {"model": linear}, "a fitted linear regression"),
    "survival-evaluation": Case(times, {"model": cox}, "a fitted Cox model"),
}
