"""Figure 3: accuracy and selected number of rounds by strategy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from multicentre.datasets import simulate_duplicated
from multicentre.datasets.duplicated import COVARIATES
from multicentre.estimator.figures import Cloud, Forest, Points
from multicentre_papers.runner.markdown import NOTHING, markdown
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    PairedDifference,
    Row,
    Section,
    mean,
    paired,
    pick,
    values,
)
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import boosted_curves, chosen_rounds
from multicentre_papers.stratified_cv.divisions import BINNED, BINNED_COLUMN, HASH, RANDOM, UNBIASED
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.published import published, published_mean
from multicentre_papers.stratified_cv.records import Integers, Pooled, pool_simulated

STRATEGIES = (UNBIASED, RANDOM, HASH, *COVARIATES, BINNED)
# Seeds differ from those of the other exercises.
_FIRST_SEED = 1000
# Horizontal distance between measured and printed points.
_WIDTH = 0.3


def n_fits(plan: Plan) -> int:
    """Return the number of measured accuracies."""
    return plan.n_simulations * len(STRATEGIES)


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate every simulation by every strategy."""
    rows: list[Row] = []
    for simulation in range(plan.n_simulations):
        seed = _FIRST_SEED + simulation
        simulated = simulate_duplicated(plan.n_records, plan.n_duplicates, random_state=seed)
        records, originals = pool_simulated(simulated)
        for strategy in STRATEGIES:
            data = originals if strategy == UNBIASED else records
            curves = boosted_curves(data, folds_by(strategy, data, seed), plan.n_rounds)
            chosen = chosen_rounds(curves.validation)
            place = {"simulation": simulation, "strategy": strategy}
            rows.append({**place, "accuracy": curves.accuracy, "chosen_rounds": chosen})
            progress(len(rows))
    return rows


def folds_by(strategy: str, records: Pooled, seed: int) -> Integers:
    """Return the fold of every record by a strategy of the figure."""
    if strategy in (UNBIASED, RANDOM):
        return divisions.random_folds(records, seed)
    if strategy == HASH:
        return divisions.hash_folds(records.person, seed, records.y)
    if strategy == BINNED:
        return divisions.binned_hash_folds(records.X[:, BINNED_COLUMN], seed)
    return divisions.threshold_folds(records.X[:, COVARIATES.index(strategy)])


def bias(rows: Sequence[Row], strategy: str) -> PairedDifference:
    """Return the mean difference from the unbiased accuracy over simulations."""
    methods = [{**row, "method": row["strategy"]} for row in rows]
    return paired(methods, "accuracy", strategy, UNBIASED, ["simulation"])


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return accuracy and bias next to the printed ones, selected rounds, figures and claims."""
    headings = ["strategy", "accuracy", "bias", "standard error", "accuracy, printed", "bias, printed", "rounds chosen"]
    blocks = [markdown(headings, [_line(rows, strategy) for strategy in STRATEGIES])]
    return Section(blocks, {"figure-3": _points(rows), "figure-3-bias": _biases(rows)}, list(_claims(rows, plan)))


def _line(rows: Sequence[Row], strategy: str) -> list[str]:
    mine = pick(rows, strategy=strategy)
    gain, error = bias(rows, strategy)[:2] if strategy != UNBIASED else (math.nan, math.nan)
    printed, printed_gain = published_mean(strategy), _published_bias(strategy)
    chosen = values(mine, "chosen_rounds")
    return [
        strategy,
        f"{mean(mine, 'accuracy'):.4f}",
        *(NOTHING if math.isnan(one) else form.format(one) for one, form in ((gain, "{:+.4f}"), (error, "{:.4f}"))),
        NOTHING if printed is None else f"{printed:.4f}",
        NOTHING if printed_gain is None else f"{printed_gain:+.4f}",
        f"{min(chosen):.0f} to {max(chosen):.0f}",
    ]


def _published_bias(strategy: str) -> float | None:
    mine, unbiased = published_mean(strategy), published_mean(UNBIASED)
    return None if mine is None or unbiased is None or strategy == UNBIASED else mine - unbiased


def _points(rows: Sequence[Row]) -> Points:
    clouds = []
    for group, points_of in (
        ("here", lambda name: values(pick(rows, strategy=name), "accuracy")),
        ("printed", _printed),
    ):
        x: list[float] = []
        y: list[float] = []
        for place, strategy in enumerate(STRATEGIES, start=1):
            heights = points_of(strategy)
            shift = _WIDTH if group == "printed" else 0.0
            x += [place + shift + 0.2 * _WIDTH * (number % 5 - 2) for number in range(len(heights))]
            y += heights
        clouds.append(Cloud("all", group, x, y))
    names = ", ".join(f"{place} {strategy}" for place, strategy in enumerate(STRATEGIES, start=1))
    return Points(
        "Accuracy of single simulations by strategy (Figure 3)",
        f"One point per simulation; printed points lie to the right. Strategies: {names}.",
        "fit",
        "strategy",
        "accuracy",
        clouds,
    )


def _printed(strategy: str) -> list[float]:
    return list(published()["figure_3"].get(strategy, ()))


def _biases(rows: Sequence[Row]) -> Forest:
    biases: dict[str, tuple[float, float]] = {}
    for strategy in STRATEGIES[1:]:
        biases[strategy] = bias(rows, strategy)[:2]
        printed = _published_bias(strategy)
        if printed is not None:
            biases[f"{strategy}, printed"] = printed, _published_error(strategy)
    lower, upper = (
        [round(gain + sign * 1.96 * (0.0 if math.isnan(error) else error), 4) for gain, error in biases.values()]
        for sign in (-1, 1)
    )
    return Forest(
        "Bias of every strategy (Figure 3)",
        "Difference from the accuracy without duplicates, with 95 % intervals of the mean over simulations.",
        "fit",
        "bias of accuracy",
        list(biases),
        [round(gain, 4) for gain, _ in biases.values()],
        lower,
        upper,
        0,
        0.0,
    )


def _published_error(strategy: str) -> float:
    """Return the standard error of a printed bias; its simulations are not paired with those of the unbiased one."""
    spreads = [float(np.var(_printed(name), ddof=1)) / len(_printed(name)) for name in (strategy, UNBIASED)]
    return math.sqrt(sum(spreads))


def _claims(rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    gains = [one - other for one, other in zip(_accuracies(rows, RANDOM), _accuracies(rows, UNBIASED), strict=True)]
    yield Claim(
        "random folds are optimistic by 0.022 to 0.042, in every simulation above 0",
        0.022 <= float(np.mean(gains)) <= 0.042 and min(gains) > 0,
        f"mean {np.mean(gains):+.4f}, from {min(gains):+.4f} to {max(gains):+.4f}",
        n_repetitions=len(gains),
    )
    yield _within("folds by the hash of the person are unbiased within 0.004", rows, HASH, -0.004, 0.004)
    yield _within("the bias by thresholds of x10 is -0.010 to 0.001", rows, "x10", -0.010, 0.001)
    lowest = min(STRATEGIES, key=lambda strategy: mean(pick(rows, strategy=strategy), "accuracy"))
    gain = bias(rows, "x5")[0]
    yield Claim(
        "the bias by thresholds of x5 is -0.04 or below, the lowest",
        gain <= -0.04 and lowest == "x5",
        f"{gain:+.4f}, lowest: {lowest}",
        n_repetitions=len(gains),
    )
    yield _within(f"{BINNED}: the bias is within 0.008", rows, BINNED, -0.008, 0.008)
    yield _agreement(rows)
    yield from _choices(rows, plan)


def _within(claim: str, rows: Sequence[Row], strategy: str, low: float, high: float) -> Claim:
    gain, error, n_pairs = bias(rows, strategy)
    figures = f"{gain:+.4f}, standard error {error:.4f}"
    return Claim(claim, low <= gain <= high, figures, n_repetitions=n_pairs)


def _agreement(rows: Sequence[Row]) -> Claim:
    from scipy.stats import pearsonr, spearmanr

    ours = [mean(pick(rows, strategy=strategy), "accuracy") for strategy in COVARIATES]
    theirs = [np.mean(_printed(strategy)) for strategy in COVARIATES]
    pearson, spearman = float(pearsonr(ours, theirs).statistic), float(spearmanr(ours, theirs).statistic)
    return Claim(
        "means of the ten covariates agree with the printed ones: correlation 0.95 or more, of ranks 0.8 or more",
        pearson >= 0.95 and spearman >= 0.8,
        f"{pearson:.3f}, of ranks {spearman:.3f}",
        n_repetitions=len(_accuracies(rows, UNBIASED)),
    )


def _choices(rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    last = plan.n_rounds
    for strategy, claim, low, high in (
        (RANDOM, "random folds choose the most rounds in 90 % of simulations or more", 0.9, 1.0),
        (HASH, "folds by hash choose the most rounds in 40 % of simulations or fewer", 0.0, 0.4),
    ):
        chosen = values(pick(rows, strategy=strategy), "chosen_rounds")
        share = float(np.mean([one == last for one in chosen]))
        figures = f"{last} rounds in {share:.0%} of {len(chosen)}"
        yield Claim(claim, low <= share <= high, figures, n_repetitions=len(chosen))


def _accuracies(rows: Sequence[Row], strategy: str) -> list[float]:
    return values(pick(rows, strategy=strategy), "accuracy")


STRATEGY_TABLE: Exercise[Plan] = Exercise("figure-3", "Figure 3: accuracy by strategy", n_fits, run, show)
