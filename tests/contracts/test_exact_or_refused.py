"""On untidy data every fit is exact or refused; no number changes in silence.

The data have rare categories, a small site, ties and gaps. Masked, a fit equals the oracle within the case's declared
rounding: the fit of the same method to the same sites without masks and without any minimum, and for methods of sums
also the fit to all records in one place. Unmasked under the default policy it equals the oracle, or a site refuses.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import multicentre as mc
from multicentre.data.concatenate import concatenate
from multicentre.errors import DisclosureRefused, RefusedByPolicy
from support.method_cases import CASES, TABLES_OF_PAIRS, each_of, timed_sites
from support.toy_method import federate

OPEN = dataclasses.replace(TABLES_OF_PAIRS, exact_times=True)
SIZES = (130, 90, 12)
# A single site computes these scores itself, without bins; tests/unit/survival/evaluation/test_one_site.py compares
# them with local data.
ALONE = {"survival-evaluation"}
# Fits that are a site's own models put together, or that draw or scale by site: no pooled fit is theirs.
BY_SITE = {
    "fed-mv-ppca",
    "dpfact",
    "trip",
    "fed-mvfcm",
    "fed-mvfpc",
    "fed-surv-boost",
    "ada-boost-f",
    "dist-boost-f",
    "pre-weak-f",
    "fed-surf",
    "local-forests",
    "log-rank, weighted",
    "survival-evaluation, within sites",
    "fed-cox",
    "fed-cox, one round",
    "fed-deep-surv",
    "fed-hazard-boost",
    "fed-rsf",
    "fed-stack",
    "suggest-stratifier",
    "fed-glm-cv",
    "fed-glmm",
    "fed-linear-mixed-model",
    "fed-mixed-cox",
    "fed-msgl",
    "fed-mvl",
    "phenotype-outcome",
    "toy-mean",
}


def untidy_survival() -> dict[str, mc.data.SurvivalData]:
    """Return sites with tied times, a level that two to four patients of each have, and missing entries."""
    sites = {}
    for number, (site, n) in enumerate(zip(timed_sites(), SIZES, strict=True)):
        rng = np.random.default_rng(40 + number)
        drawn = timed_sites()[site].take(np.arange(n))
        X = np.array(drawn.X)
        X[:, 2] = 0.0
        X[: 2 + number, 2] = 1.0
        X[rng.random(n) < 0.05, 0] = np.nan
        time = np.ceil(drawn.time / 5.0) * 5.0
        sites[site] = mc.data.SurvivalData(X, time, drawn.event, columns=drawn.columns, unit=drawn.unit)
    return sites


def untidy_tables(classes: int) -> dict[str, mc.data.TableData]:
    """Return sites with a rare level, ties and missing entries, and classes or a number to predict."""
    sites = {}
    for number, n in enumerate(SIZES):
        rng = np.random.default_rng(60 + number)
        X = np.round(rng.normal(size=(n, 3)), 1)
        X[:, 2] = np.arange(n) < 3
        mean = X[:, 0] - X[:, 1] + rng.normal(size=n)
        X[rng.random((n, 3)) < 0.04] = np.nan
        y = 50 + 9 * mean if not classes else np.clip((mean > 0).astype(int) + (mean > 1), 0, classes - 1)
        options: dict[str, Any] = {"classes": ["a", "b", "c"][:classes]} if classes else {"outcome": "number"}
        sites[f"site-{number}"] = mc.data.TableData(X, y, **options)
    return sites


def untidy_views(views: Mapping[str, int]) -> dict[str, mc.data.MultiViewData]:
    """Return sites with a rare column, ties and, at the small site, a column that is constant."""
    sites = {}
    for number, n in enumerate(SIZES):
        rng = np.random.default_rng(80 + number)
        group = rng.integers(0, 3, n)
        blocks = {view: np.round(3 * np.eye(3, d)[group] + rng.normal(size=(n, d)), 1) for view, d in views.items()}
        first = blocks[next(iter(views))]
        first[:, -1] = np.arange(n) < 3 if number < 2 else 0.0
        sites[f"site-{number}"] = mc.data.MultiViewData(blocks)
    return sites


UNTIDY: dict[str, Callable[[], Mapping[str, Any]]] = {
    "fed-xgb": lambda: untidy_tables(2),
    "fed-xgb, numbers": lambda: untidy_tables(0),
    **dict.fromkeys(["fed-xgb, classes", "ada-boost-f", "dist-boost-f", "pre-weak-f", "suggest-stratifier"],
                    lambda: untidy_tables(3)),
    **dict.fromkeys(["fed-mv-ppca", "fed-mv-ppca, as published", "fed-mv-ppca, hierarchical"],
                    lambda: untidy_views({"a": 3, "b": 4})),
    **dict.fromkeys(["fed-mvfcm", "fed-mvfpc"], lambda: untidy_views({"a": 4, "b": 3})),
}  # fmt: skip


def untidy(name: str) -> Mapping[str, Any]:
    """Return a case's untidy data; its own where it takes other kinds, whose cells are small as they are."""
    own = CASES[name].sites()
    if name in UNTIDY:
        return UNTIDY[name]()
    return untidy_survival() if isinstance(next(iter(own.values())), mc.data.SurvivalData) else own


def numbers(name: str, sites: Mapping[str, Any], **options: Any) -> Mapping[str, np.ndarray]:
    with federate(sites, **options) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit's quality, on data that are made to be hard
        return CASES[name].numbers(CASES[name].make().fit(federation))


@functools.cache
def oracle(name: str) -> Mapping[str, np.ndarray]:
    return numbers(name, untidy(name), policy=OPEN, secure_sum=False)


def assert_near(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], error: float) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=error, err_msg=key)


each = each_of(CASES)


@each
def test_masked_untidy_data_give_the_exact_numbers(name):
    policy = CASES[name].policy and dataclasses.replace(CASES[name].policy, exact_times=True)
    assert_near(numbers(name, untidy(name), policy=policy, secure_sum=True), oracle(name), CASES[name].masked_error)


@each
def test_unmasked_untidy_data_give_the_exact_numbers_or_a_refusal(name):
    try:
        found = numbers(name, untidy(name), policy=mc.Policy(), secure_sum=False)
    except (DisclosureRefused, RefusedByPolicy):
        return
    assert_near(found, oracle(name), CASES[name].masked_error)


@each_of(
    name
    for name in CASES
    if name not in BY_SITE | ALONE | {"fed-glm, sites"} and name.split(",")[0] not in BY_SITE - {"fed-cox"}
)
def test_untidy_data_of_all_sites_in_one_place_give_the_same_numbers(name):
    pooled = {"all": concatenate(untidy(name))}
    found = numbers(name, pooled, policy=OPEN, secure_sum=False)
    assert_near(found, oracle(name), max(CASES[name].masked_error, 1e-9))
