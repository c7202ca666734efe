"""Four real hospitals: accuracy by folding strategy, and with one hospital left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.datasets import load_heart4
from multicentre.errors import MulticentreError
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, skipped
from multicentre_papers.runner.section import values as section_values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import out_of_fold
from multicentre_papers.stratified_cv.differences import untested
from multicentre_papers.stratified_cv.divisions import HASH, RANDOM
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled, pool

LEFT_OUT = "leave a hospital out"
THRESHOLDS = ("age", "thalach", "trestbps")
SETTINGS: Mapping[str, Any] = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.1}
# A quarter of the simulations' rounds: there are 920 patients.
N_ROUNDS = 50
_FIGURES = ("accuracy", "auc")
_CLAIMS = (
    "without duplicates, random and hashed folds agree (area under the curve within 0.01)",
    "predictions for a left-out hospital are worse than those of folds across hospitals",
)
MIMIC = "MIMIC-III, two intensive care units: random folds are optimistic, folds by a covariate are not"


def n_fits(plan: Plan) -> int:
    """Return the number of repeats."""
    return plan.n_repeats


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate boosted trees on the patients of four hospitals by every strategy."""
    try:
        sites = load_heart4(version="full")
    except MulticentreError as error:
        return [{"sample": "heart4", "skipped": str(error)}]
    records, names = pool(sites), list(sites)
    columns = sites[names[0]].columns
    rows: list[Row] = []
    for repeat in range(plan.n_repeats):
        for strategy in (RANDOM, HASH):
            folds = _drawn(strategy, records, repeat)
            rows += _measured(records, folds, names, {"strategy": strategy, "repeat": repeat})
        progress(repeat + 1)
    for column in THRESHOLDS:
        values = records.X[:, columns.index(column)]
        rows += _measured(
            records, divisions.threshold_folds(values), names, {"strategy": f"thresholds of {column}", "repeat": 0}
        )
    rows += _measured(records, records.site, names, {"strategy": LEFT_OUT, "repeat": 0})
    return rows


def _drawn(strategy: str, records: Pooled, seed: int) -> Integers:
    if strategy == RANDOM:
        return divisions.random_folds(records, seed)
    return divisions.hash_folds(records.person, seed, records.y)


def _measured(records: Pooled, folds: Integers, names: Sequence[str], place: Mapping[str, Any]) -> list[Row]:
    predicted = out_of_fold(records, folds, SETTINGS, N_ROUNDS)
    sites = {"all": np.ones(len(folds), dtype=np.bool_)} | {name: records.site == k for k, name in enumerate(names)}
    return [
        {**place, "site": name, **_scores(records.y, predicted, rows & (folds >= 0))} for name, rows in sites.items()
    ]


def _scores(y: Floats, predicted: Floats, rows: NDArray[np.bool_]) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    correct = (predicted[rows] > 0.5) == (y[rows] > 0.5)
    return {
        "n": int(rows.sum()),
        "accuracy": float(correct.mean()),
        "auc": float(roc_auc_score(y[rows], predicted[rows])),
    }


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return accuracy and area under the curve by strategy and hospital."""
    measured = [row for row in rows if not row.get("skipped")]
    if not measured:
        return Section(skipped(rows), claims=untested(*_CLAIMS, MIMIC))
    strategies, sites = distinct(measured, "strategy"), distinct(measured, "site")
    blocks = [
        markdown(
            [f"{title} of held-out patients", *sites],
            [[name, *(_cell(measured, name, site, figure) for site in sites)] for name in strategies],
        )
        for figure, title in zip(_FIGURES, ("accuracy", "area under the curve"), strict=True)
    ]
    note = (
        "920 patients without known duplicates. Scores are computed on the predictions of all folds. Only eight "
        "patients in Switzerland lack the disease: its area under the curve is imprecise."
    )
    return Section([note, *blocks], claims=[*_claims(measured), *untested(MIMIC)])


def _cell(rows: Sequence[Row], strategy: str, site: str, figure: str) -> str:
    scores = section_values(pick(rows, strategy=strategy, site=site), figure)
    return mean_and_spread(scores) if scores else NOTHING


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    everybody = pick(rows, site="all")
    random, hashed, left = (mean(pick(everybody, strategy=one), "auc") for one in (RANDOM, HASH, LEFT_OUT))
    yield Claim(
        _CLAIMS[0],
        abs(random - hashed) <= 0.01,
        f"{random:.3f} and {hashed:.3f}",
        n_repetitions=len(pick(everybody, strategy=HASH)),
    )
    yield Claim(
        _CLAIMS[1],
        left < min(random, hashed),
        f"{left:.3f} against {random:.3f} and {hashed:.3f}",
        n_repetitions=len(pick(everybody, strategy=HASH)),
    )


HOSPITALS: Exercise[Plan] = Exercise("hospitals", "Four real hospitals", n_fits, run, show)
