"""How often a fit asks the sites: calls of every method at its defaults, and the minutes that they take over Flower.

A call is one exchange with all sites. Calls are counted, not timed: sites run in this process, three of them. Where a
default would take long without changing the number of calls (steps of training between two calls), it is shortened.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from measuring import pin_threads, write_json

import multicentre as mc
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from multicentre_papers import baselines

N_SITES, N_FOLDS = 3, 5
POLICY = mc.Policy(min_patients=0, relations="dense")
Sites = Mapping[str, Any]


@dataclass(frozen=True)
class Counted:
    """A method and how it is counted.

    Parameters
    ----------
    formula : str
        What decides the number of calls without masks.
    sites : callable
        Makes the data, by site.
    params : mapping
        Parameters that have no default, or change no call; what can be called is.
    brief : mapping, optional
        What keeps the five fits of a cross-validation short; None for a method that predicts nothing.
    """

    formula: str
    sites: Callable[[], Sites]
    params: Mapping[str, Any] = field(default_factory=dict)
    brief: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Found:
    """Calls of one method.

    Parameters
    ----------
    unmasked, masked, tolerant : int
        Calls of an unmasked fit; with masked sums of which every site is needed; and with masked sums that outlive the
        loss of a site.
    beside : int, optional
        Masked calls of a five-fold cross-validation beside those of its five fits.
    steps : mapping of str to int
        Calls of the masked fit, by step.
    seconds : float
        What counting took.
    """

    unmasked: int
    masked: int
    tolerant: int
    beside: int | None
    steps: Mapping[str, int]
    seconds: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(COUNTED)}; all by default")
    parser.add_argument("--fast", type=float, default=0.43, help="seconds per call in fast mode")
    parser.add_argument("--standard", type=float, default=6.7, help="seconds per call in standard mode")
    parser.add_argument("--steps", action="store_true", help="print the calls of the masked fit by step, too")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    if uncounted := sorted(set(METHODS) - set(COUNTED)):
        parser.error(f"COUNTED in this script must list every installed method; it lacks {', '.join(uncounted)}")
    if unknown := sorted(set(given.methods) - set(METHODS)):
        parser.error(f"methods must be installed; got {', '.join(unknown)}")
    pin_threads()
    found = {name: count(name) for name in given.methods or COUNTED if name in METHODS}
    if absent := sorted(set(COUNTED) - set(METHODS)):
        print(f"Not installed, and not counted (pip install ./papers): {', '.join(absent)}.\n")
    print(as_markdown(found, given.fast, given.standard))
    if given.steps:
        for name, one in found.items():
            print(f"\n{name}: " + ", ".join(f"{step} {n}" for step, n in one.steps.items()))
    print(f"\nCounted in {sum(one.seconds for one in found.values()):.0f} s.")
    write_json(given.json, {name: asdict(one) for name, one in found.items()})


def count(name: str) -> Found:
    """Return the calls of a method."""
    began, case = time.perf_counter(), COUNTED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = find_estimator(name)
        sites = case.sites()
        params = {name: value() if callable(value) else value for name, value in case.params.items()}
        unmasked, _ = fit(kind(**params), sites, secure=False)
        masked, steps = fit(kind(**params), sites, secure=True)
        tolerant, _ = fit(kind(**params), sites, secure=True, quorum=N_SITES - 1)
        beside = None if case.brief is None else count_beside(kind(**{**params, **case.brief}), sites)
    return Found(unmasked, masked, tolerant, beside, steps, time.perf_counter() - began)


def fit(estimator: Any, sites: Sites, **options: Any) -> tuple[int, dict[str, int]]:
    """Return the calls of one fit, and by step."""
    with federate(sites, **options) as federation:
        estimator.fit(federation)
    return federation.traffic.round_trips, dict(federation.traffic.calls)


def count_beside(estimator: Any, sites: Sites) -> int:
    """Return the calls of a cross-validation beyond those of its longest fit: the plan of folds, and the scores."""
    kind, inside = type(estimator), list[int]()
    plain = kind.fit

    def counted(self: Any, federation: Any, *args: Any, **options: Any) -> Any:
        before = federation.traffic.round_trips
        fitted = plain(self, federation, *args, **options)
        inside.append(federation.traffic.round_trips - before)
        return fitted

    with federate(sites, secure=True) as federation, patch.object(kind, "fit", counted):
        mc.validation.cross_validate(estimator, federation, cv=N_FOLDS, error_score="raise")
    if len(inside) != N_FOLDS:
        raise RuntimeError(f"{len(inside)} fits were counted, not {N_FOLDS}")
    return federation.traffic.round_trips - max(inside)


def count_alignment(sites: Sites) -> int:
    """Return the calls by which sites bring the records of the same patients into one order."""
    with federate(sites, secure=True) as federation:
        mc.linkage.align(federation)
    return federation.traffic.round_trips


def as_markdown(found: Mapping[str, Found], fast_s: float, standard_s: float) -> str:
    """Return the table; minutes are those of the masked fit."""
    headings = [
        "method",
        "calls of an unmasked fit: what decides",
        "unmasked",
        "masked",
        "masked, losses tolerated",
        f"minutes at {fast_s:g} s per call",
        f"minutes at {standard_s:g} s per call",
        f"{N_FOLDS}-fold cross-validation, masked",
    ]
    rows = [headings, ["---", "---", *["---:"] * 5, "---"]]
    for name, one in found.items():
        minutes = [f"{one.masked * seconds / 60:.1f}" for seconds in (fast_s, standard_s)]
        folds = "-" if one.beside is None else f"longest fit + {one.beside}"
        counts = [str(one.unmasked), str(one.masked), str(one.tolerant)]
        rows.append([f"`{name}`", COUNTED[name].formula, *counts, *minutes, folds])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\nAn alignment alone: {count_alignment(aligned())} calls."


def federate(sites: Sites, *, secure: bool, quorum: int | Literal["all"] = "all") -> mc.Federation:
    """Return a federation of these sites in this process."""
    return mc.Federation.in_process(sites, policy=POLICY, secure_sum=secure, quorum=quorum)


def views() -> Sites:
    """Return three sites with the same views of different patients."""
    drawn = mc.datasets.simulate_sd(0, "mild").data
    return {f"site-{i}": named(drawn.take(np.arange(i, 399, N_SITES)), i) for i in range(N_SITES)}


def aligned() -> Sites:
    """Return three sites that hold a view each of the same patients."""
    drawn = mc.datasets.simulate_views(150, random_state=0).data
    names = [f"person-{row}" for row in range(len(drawn))]
    return {f"site-{view}": mc.data.MultiViewData({view: drawn.array(view)}, names) for view in drawn.views}


def events() -> Sites:
    """Return three sites with events of two kinds and an outcome."""
    drawn = mc.datasets.simulate_planted(900, {"procedure": 40, "diagnosis": 60}, 5, N_SITES, outcome_rate=0.3)
    return {site: named(tensor, place) for place, (site, tensor) in enumerate(drawn.by_site().items())}


def times() -> Sites:
    """Return three sites with times to an event."""
    return {f"site-{i}": named(mc.datasets.simulate_survival(200, 5, i), i) for i in range(N_SITES)}


def classes() -> Sites:
    """Return three sites with two classes to be told apart."""
    return {f"site-{i}": table(i, "class") for i in range(N_SITES)}


def three_classes() -> Sites:
    """Return three sites with three classes to be told apart."""
    sites = {}
    for place, (name, data) in enumerate(numbers().items()):
        sites[name] = named(mc.data.TableData(data.X, np.digitize(data.y, [-1.0, 1.0])), place)
    return sites


def numbers() -> Sites:
    """Return three sites with a number to be predicted."""
    return {f"site-{i}": table(i, "number") for i in range(N_SITES)}


def counts() -> Sites:
    """Return three sites with a count to be predicted."""
    sites = {}
    for name, data in numbers().items():
        y = np.random.default_rng(0).poisson(np.exp(np.clip(data.y / 2.0, -3.0, 3.0))).astype(np.float64)
        sites[name] = data.with_arrays(y=y)
    return sites


def table(site: int, outcome: Literal["class", "number"]) -> Any:
    """Return a site with five columns and an outcome that follows from two of them, and noise."""
    rng = np.random.default_rng(site)
    X = rng.normal(size=(300, 5))
    y = X[:, 0] - np.abs(X[:, 1]) + rng.normal(size=300)
    return named(mc.data.TableData(X, y if outcome == "number" else (y > 0).astype(int), outcome=outcome), site)


def named(data: Any, site: int) -> Any:
    """Return data with an identifier for each patient, so that folds can go by persons."""
    return data.with_identifier([f"person-{site}-{row}" for row in range(len(data))])


def cox() -> Any:
    """Return a Cox model of the sites' patients."""
    with federate(times(), secure=False) as federation:
        return mc.survival.FedCox().fit(federation)


def logistic() -> Any:
    """Return a logistic regression of the sites' records."""
    with federate(classes(), secure=False) as federation:
        return mc.regression.FedLogisticRegression().fit(federation)


def linear() -> Any:
    """Return a linear regression of the sites' records."""
    with federate(numbers(), secure=False) as federation:
        return mc.regression.FedLinearRegression().fit(federation)


def fitted() -> list[Any]:
    """Return two survival models of the sites' patients, to be combined."""
    with federate(times(), secure=False) as federation:
        return [mc.survival.FedCox().fit(federation), baselines.FedSurF(10).fit(federation)]


def phenotypes() -> Any:
    """Return phenotypes of the sites' events."""
    with federate(events(), secure=False) as federation:
        return mc.phenotyping.DPFact(5).fit(federation)


COUNTED = {
    "fed-mv-ppca": Counted("8 + rounds, at most 100", views, brief={"max_iter": 2}),
    "fed-mv-ppca-as-published": Counted("8 + rounds, 100", views, {"n_local_iter": 1}, {"max_iter": 2}),
    "fed-vae": Counted("5 + rounds, 100", views, {"n_local_iter": 1}, {"max_iter": 1}),
    "fed-mcvae": Counted("5 + rounds, 100", views, {"n_local_iter": 1}, {"max_iter": 1}),
    "dpfact": Counted("13 + (25 + rounds) x kinds of code, at most 500 x 2", events, {"rank": 5}, {"max_iter": 1}),
    "dpfact-as-published": Counted("6 + rounds, at most 30", events, {"rank": 5}, {"max_iter": 1}),
    "trip": Counted("6 + rounds, at most 100", events, {"rank": 5}, {"max_iter": 1}),
    "phenotype-outcome": Counted(
        "3 + Newton steps, at most 25", events, {"phenotypes": phenotypes}, {"test_size": 0.0}
    ),
    "fed-cox": Counted("7 + Newton steps, at most 25", times, brief={}),
    "fed-mixed-cox": Counted("9 + 2 x Newton steps without effects + Newton steps, at most 50 each", times),
    "fed-hazard-boost": Counted("8 + trees x depth, 200 x 2", times, {"early_stopping": False}, {"n_estimators": 1}),
    "fed-rsf": Counted("8 + levels of the deepest tree, however many trees", times, brief={"max_depth": 1}),
    "fed-surv-boost": Counted(
        "12 + 3 x rounds, at most 50, + fits of hazards one after the other x (1 + 2 x Newton steps), 3",
        times,
        brief={"n_estimators": 1, "recalibrate": False},
    ),
    "fed-surv-boost-as-published": Counted("7 + 3 x rounds, at most 50", times, brief={"n_estimators": 1}),
    "fed-surf": Counted("8, however many trees", times, brief={}),
    "local-forests": Counted("8, however many trees", times, brief={}),
    "fed-deep-surv": Counted("7 + rounds, at most 100", times, brief={"max_iter": 1}),
    "fed-msgl": Counted("alignment + 2; with n rounds alignment + 1 + 2 n", aligned, {"n_clusters": 3}),
    "fed-msgl-as-published": Counted("alignment + 1 + 2 x rounds, 5", aligned, {"n_clusters": 3}),
    "fed-msgl-as-printed": Counted("alignment + 1 + 2 x rounds, 5", aligned, {"n_clusters": 3}),
    "fed-mvl": Counted("alignment + 7 + rounds, at most 35", aligned, {"n_clusters": 3}),
    "ada-boost-f": Counted("5 + 3 x rounds, at most 50", classes, brief={"n_estimators": 1}),
    "dist-boost-f": Counted("5 + 3 x rounds, at most 50", classes, brief={"n_estimators": 1}),
    "pre-weak-f": Counted("6 + trees of a site + 2 x rounds, at most 50 + 50", classes, brief={"n_estimators": 1}),
    "fed-mvfcm": Counted("5 + rounds of the longest of 5 starts, at most 100", views),
    "fed-mvfpc": Counted("5 + rounds of the longest of 5 starts, at most 100", views),
    "fed-xgb-classifier": Counted(
        "5 + search of cuts (at most 9) + trees x depth, 100 x 6", classes, brief={"n_estimators": 1}
    ),
    "fed-xgb-regressor": Counted(
        "6 + search of cuts (at most 9) + trees x depth, 100 x 6", numbers, brief={"n_estimators": 1}
    ),
    "fed-stack": Counted("5, after the fits that it combines", times, {"estimators": fitted, "weights": "brier"}),
    "describe": Counted(
        "4 + quartiles 4; histograms 2 (1 with quartiles), correlations 1, and 1 more with both", classes
    ),
    "fed-glm": Counted("4 + Fisher steps, at most 25", numbers),
    "fed-glm-cv": Counted("5 + Fisher steps, at most 50 (gaussian outcomes with the identity link)", numbers),
    "fed-linear-mixed-model": Counted("6 + Newton steps, at most 50", numbers),
    "fed-glmm": Counted("5 + Newton steps, at most 50", classes),
    "fed-poisson-regression": Counted("4 + Fisher steps, at most 25", counts),
    "fed-linear-regression": Counted("4 + Fisher steps, at most 25", numbers),
    "fed-logistic-regression": Counted("4 + Fisher steps, at most 25", classes),
    "fed-multinomial-regression": Counted("4 + Newton steps, at most 25", three_classes, brief={}),
    "fed-ordinal-regression": Counted("5 + Newton steps, at most 25", three_classes, brief={}),
    "kaplan-meier": Counted("5", times),
    "aalen-johansen": Counted("5", times),
    "log-rank": Counted("6", times, {"group": "x2"}),
    "classifier-validation": Counted("3 + Newton steps of the calibration, at most 25", classes, {"model": logistic}),
    "regressor-validation": Counted("5", numbers, {"model": linear}),
    "survival-evaluation": Counted(
        "7 + Newton steps of the calibration, after the fit of the model", times, {"model": cox}
    ),
}

if __name__ == "__main__":
    main()
