"""Figure 2: accuracy after every round of boosting, on training and on held-out records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.datasets import simulate_duplicated
from multicentre.estimator.figures import Lines
from multicentre_papers.runner.markdown import NOTHING, markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import boosted_curves
from multicentre_papers.stratified_cv.divisions import HASH, RANDOM, UNBIASED
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.published import published
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled, pool_simulated

# The smallest number on which claims are judged.
N_SIMULATIONS = 5
OPTIMAL = "best possible"
STRATEGIES = (UNBIASED, RANDOM, "x1", HASH)


def n_fits(plan: Plan) -> int:
    """Return the number of measured curves."""
    return N_SIMULATIONS * len(STRATEGIES)


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate some simulations by every strategy, and return the accuracies of every round."""
    rows: list[Row] = []
    for seed in range(N_SIMULATIONS):
        simulated = simulate_duplicated(plan.n_records, plan.n_duplicates, random_state=seed)
        records, originals = pool_simulated(simulated)
        folds = {
            UNBIASED: (originals, divisions.random_folds(originals, seed)),
            RANDOM: (records, divisions.random_folds(records, seed)),
            "x1": (records, divisions.threshold_folds(records.X[:, 0])),
            HASH: (records, divisions.hash_folds(records.person, seed, records.y)),
        }
        optimal = simulated.truth.optimal_accuracy()
        rows.append({"simulation": seed, "strategy": OPTIMAL, "round": 0, "validation": optimal})
        for number, (strategy, (data, division)) in enumerate(folds.items(), start=1):
            rows += _curve({"simulation": seed, "strategy": strategy}, data, division, plan.n_rounds)
            progress(seed * len(STRATEGIES) + number)
    return rows


def _curve(place: Row, records: Pooled, folds: Integers, n_rounds: int) -> list[Row]:
    curves = boosted_curves(records, folds, n_rounds, with_training=True)
    assert curves.training is not None  # requested by with_training
    return [
        {**place, "round": number, "training": float(train), "validation": float(test)}
        for number, (train, test) in enumerate(zip(curves.training, curves.validation, strict=True), start=1)
    ]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return last and largest accuracies next to the printed ones, the curves and the claims."""
    by_strategy = {name: _curves(pick(rows, strategy=name), "validation") for name in STRATEGIES}
    trained = {name: _curves(pick(rows, strategy=name), "training") for name in STRATEGIES}
    optimal = mean(pick(rows, strategy=OPTIMAL), "validation")
    printed = published()["figure_2"]
    headings = ["strategy", "training", "held out", "standard deviation", "largest", "at round", "held out, printed"]
    lines = [
        [name, *_summary(trained[name], curves), f"{printed[name]:.4f}" if name in printed else NOTHING]
        for name, curves in by_strategy.items()
    ]
    note = f"Means of {len(by_strategy[UNBIASED])} simulations. Best possible accuracy: {optimal:.4f}; printed, of one "
    note += f"simulation: {printed['optimal']:.4f}."
    figure = _figure(by_strategy, trained, optimal)
    return Section([markdown(headings, lines), note], {"figure-2": figure}, list(_claims(by_strategy, trained)))


def _curves(rows: Sequence[Row], name: str) -> Floats:
    """Return the curve of every simulation, shape (n_simulations, n_rounds)."""
    return np.array([values(pick(rows, simulation=one), name) for one in distinct(rows, "simulation")])


def _summary(trained: Floats, held: Floats) -> list[str]:
    average = held.mean(axis=0)
    last = [f"{trained[:, -1].mean():.4f}", f"{average[-1]:.4f}", f"{held[:, -1].std(ddof=1):.4f}"]
    return [*last, f"{average.max():.4f}", str(average.argmax() + 1)]


def _figure(held: Mapping[str, Floats], trained: Mapping[str, Floats], optimal: float) -> Lines:
    rounds = list(range(1, held[UNBIASED].shape[1] + 1))
    series: dict[str, Any] = {f"{name}, held out": curves.mean(axis=0).tolist() for name, curves in held.items()}
    series |= {f"{name}, training": curves.mean(axis=0).tolist() for name, curves in trained.items() if name != HASH}
    series[OPTIMAL] = [optimal] * len(rounds)
    return Lines(
        "Accuracy after every round (Figure 2)",
        "Mean of the simulations. Random folds hide that the accuracy on new records no longer rises; folds that keep "
        "the records of a person together show it.",
        "fit",
        "round",
        "accuracy",
        rounds,
        series,
        {},
    )


def _claims(held: Mapping[str, Floats], trained: Mapping[str, Floats]) -> Iterator[Claim]:
    last = np.array([curves[:, -1] for curves in trained.values()])
    apart = last.max(axis=0) - last.min(axis=0)
    yield Claim(
        "training accuracies do not depend on the strategy (within 0.01)",
        bool(apart.max() <= 0.01),
        f"at most {apart.max():.4f} apart, {apart.mean():.4f} on average",
        n_repetitions=len(apart),
    )
    late = {name: np.array([_late_gain(curve) for curve in curves]) for name, curves in held.items()}
    yield Claim(
        "with random folds the last three quarters of the rounds gain 0.01 or more, in truth and by hash 0.005 or less",
        bool(late[RANDOM].mean() >= 0.01 and max(late[UNBIASED].mean(), late[HASH].mean()) <= 0.005),
        ", ".join(f"{name} {gain.mean():+.4f} (sd {gain.std(ddof=1):.4f})" for name, gain in late.items()),
        n_repetitions=len(apart),
    )


def _late_gain(curve: Floats) -> float:
    """Return the accuracy of the last tenth of the rounds minus that of a tenth around the first quarter's end."""
    quarter, half_width = len(curve) // 4, max(1, len(curve) // 20)
    early = curve[quarter - half_width : quarter + half_width]
    return float(curve[-2 * half_width :].mean() - early.mean())


CURVES: Exercise[Plan] = Exercise("figure-2", "Figure 2: accuracy after every round", n_fits, run, show)
