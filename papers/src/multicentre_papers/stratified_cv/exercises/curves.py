"""Figure 2: accuracy after every round of boosting, on training and on held-out records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.datasets import simulate_duplicated
from multicentre.estimator.figures import Lines
from multicentre_papers.runner.markdown import NOTHING, markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, pick, values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import boosted_curves
from multicentre_papers.stratified_cv.divisions import HASH, RANDOM, UNBIASED
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.published import published
from multicentre_papers.stratified_cv.records import Floats, pool_simulated

# Arbitrary but fixed: the exercise shows the curves of one simulation, the same in every run.
SEED = 0
OPTIMAL = "best possible"
STRATEGIES = (UNBIASED, RANDOM, "x1", HASH)


def n_fits(plan: Plan) -> int:
    """Return the number of strategies."""
    return len(STRATEGIES)


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate one simulation by every strategy, and return the accuracies of every round."""
    simulated = simulate_duplicated(plan.n_records, plan.n_duplicates, random_state=SEED)
    records, originals = pool_simulated(simulated)
    folds = {
        UNBIASED: (originals, divisions.random_folds(originals, SEED)),
        RANDOM: (records, divisions.random_folds(records, SEED)),
        "x1": (records, divisions.threshold_folds(records.X[:, 0])),
        HASH: (records, divisions.hash_folds(records.person, SEED, records.y)),
    }
    rows: list[Row] = [{"strategy": OPTIMAL, "round": 0, "validation": simulated.truth.optimal_accuracy()}]
    for number, (strategy, (data, division)) in enumerate(folds.items(), start=1):
        curves = boosted_curves(data, division, plan.n_rounds, with_training=True)
        assert curves.training is not None  # requested by with_training
        rows += [
            {"strategy": strategy, "round": place + 1, "training": float(train), "validation": float(test)}
            for place, (train, test) in enumerate(zip(curves.training, curves.validation, strict=True))
        ]
        progress(number)
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return last and largest accuracies next to the printed ones, the curves and the claims."""
    measured = [row for row in rows if row["strategy"] != OPTIMAL]
    by_strategy = {name: pick(measured, strategy=name) for name in distinct(measured, "strategy")}
    optimal = float(pick(rows, strategy=OPTIMAL)[0]["validation"])
    printed = published()["figure_2"]
    headings = ["strategy", "training", "held out", "largest", "at round", "held out, printed"]
    lines = [
        [name, *_summary(curve), f"{printed[name]:.4f}" if name in printed else NOTHING]
        for name, curve in by_strategy.items()
    ]
    note = f"Best possible accuracy: {optimal:.4f}; printed: {printed['optimal']:.4f}."
    return Section(
        [markdown(headings, lines), note], {"figure-2": _figure(by_strategy, optimal)}, list(_claims(by_strategy))
    )


def _summary(rows: Sequence[Row]) -> list[str]:
    held = np.array(values(rows, "validation"))
    return [f"{rows[-1]['training']:.4f}", f"{held[-1]:.4f}", f"{held.max():.4f}", str(held.argmax() + 1)]


def _figure(by_strategy: Mapping[str, Sequence[Row]], optimal: float) -> Lines:
    rounds = [int(row["round"]) for row in by_strategy[UNBIASED]]
    series: dict[str, Any] = {f"{name}, held out": values(rows, "validation") for name, rows in by_strategy.items()}
    series |= {f"{name}, training": values(rows, "training") for name, rows in by_strategy.items() if name != HASH}
    series[OPTIMAL] = [optimal] * len(rounds)
    return Lines(
        "Accuracy after every round (Figure 2)",
        "Random folds hide that the accuracy on new records no longer rises; folds that keep the records of a person "
        "together show it.",
        "fit",
        "round",
        "accuracy",
        rounds,
        series,
        {},
    )


def _claims(by_strategy: Mapping[str, Sequence[Row]]) -> Iterator[Claim]:
    held = {name: np.array(values(rows, "validation")) for name, rows in by_strategy.items()}
    trained = [float(rows[-1]["training"]) for rows in by_strategy.values()]
    yield Claim(
        "training accuracies do not depend on the strategy (within 0.01)",
        max(trained) - min(trained) <= 0.01,
        f"from {min(trained):.4f} to {max(trained):.4f}",
    )
    late = {name: _late_gain(curve) for name, curve in held.items()}
    yield Claim(
        "with random folds the last three quarters of the rounds gain 0.01 or more, in truth and by hash 0.005 or less",
        late[RANDOM] >= 0.01 and max(late[UNBIASED], late[HASH]) <= 0.005,
        ", ".join(f"{name} {gain:+.4f}" for name, gain in late.items()),
    )


def _late_gain(curve: Floats) -> float:
    """Return the accuracy of the last tenth of the rounds minus that of a tenth around the first quarter's end."""
    quarter, half_width = len(curve) // 4, max(1, len(curve) // 20)
    early = curve[quarter - half_width : quarter + half_width]
    return float(curve[-2 * half_width :].mean() - early.mean())


CURVES: Exercise[Plan] = Exercise("figure-2", "Figure 2: accuracy after every round", n_fits, run, show)
